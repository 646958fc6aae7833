"""The configuration: one TOML file, checked as a whole, becomes one frozen value. Start at `load.py`.

`settings.py` says what may be set, `values.py` how values are written, `presets.py` what an issuer's kind fills in,
`overrides.py` what the environment may replace, `rules.py` what must hold between the values, `isolation_rules.py` what
`[[isolation.rules]]` may say, and `expressions.py` which regular expressions there are. Nothing outside this package
reads a configuration file, an environment variable or a secret.
"""
