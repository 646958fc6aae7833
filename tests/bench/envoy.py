"""Envoy's settings for the part of the job that it can do: the JWT checked, and a salt written into the body."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.parts.tokens import TokenMint

# The subject serves as the salt: an HMAC is more than this Lua offers.
_REWRITE: Final = """
function envoy_on_request(h)
  local verified = h:streamInfo():dynamicMetadata():get("envoy.filters.http.jwt_authn")
  if verified == nil or h:headers():get(":method") ~= "POST" then return end
  local body = h:body()
  local text = body:getBytes(0, body:length())
  local brace = string.find(text, "{", 1, true)
  if brace == nil or string.find(text, '"cache_salt"', 1, true) then
    h:respond({[":status"] = "400"}, "bad body")
    return
  end
  body:setBytes('{"cache_salt":"' .. verified["claims"]["sub"] .. '",' .. string.sub(text, brace + 1))
  h:headers():replace("content-length", tostring(body:length()))
end
"""
# Beyond what any case needs, so that no limit of Envoy's is what is measured.
_BUFFER_BYTES: Final = 64 * 1024 * 1024
_MANY: Final = 20_000


def envoy_configuration(port: int, engine_port: int, mint: TokenMint) -> dict[str, Any]:
    """A static bootstrap: listens on `port`, accepts the mint's access tokens for audience "saltgate"."""
    return {"static_resources": {"listeners": [_listener(port, mint)], "clusters": [_cluster(engine_port)]}}


def _listener(port: int, mint: TokenMint) -> dict[str, Any]:
    filters = [
        _typed("http.jwt_authn", "http.jwt_authn.v3.JwtAuthentication", _jwt(mint)),
        _typed("http.lua", "http.lua.v3.Lua", {"default_source_code": {"inline_string": _REWRITE}}),
        _typed("http.router", "http.router.v3.Router", {}),
    ]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}
    host = {"name": "any", "domains": ["*"], "routes": [route]}
    manager = {
        "stat_prefix": "in",
        "stream_idle_timeout": "600s",
        "route_config": {"name": "any", "virtual_hosts": [host]},
        "http_filters": filters,
    }
    chain = _typed(
        "network.http_connection_manager", "network.http_connection_manager.v3.HttpConnectionManager", manager
    )
    return {
        "name": "in",
        "address": _address(port),
        "tcp_backlog_size": 4096,
        "per_connection_buffer_limit_bytes": _BUFFER_BYTES,
        "filter_chains": [{"filters": [chain]}],
    }


def _jwt(mint: TokenMint) -> dict[str, Any]:
    provider = {
        "issuer": mint.issuer,
        "audiences": ["saltgate"],
        "local_jwks": {"inline_string": json.dumps(mint.jwks())},
        "payload_in_metadata": "claims",
        "forward": False,
    }
    return {
        "providers": {"issuer": provider},
        "rules": [{"match": {"prefix": "/v1/"}, "requires": {"provider_name": "issuer"}}],
    }


def _cluster(engine_port: int) -> dict[str, Any]:
    thresholds = {
        "max_connections": _MANY,
        "max_pending_requests": _MANY,
        "max_requests": _MANY,
        "max_retries": 100,
    }
    endpoint = {"endpoint": {"address": _address(engine_port)}}
    return {
        "name": "engine",
        "type": "STATIC",
        "connect_timeout": "5s",
        "per_connection_buffer_limit_bytes": _BUFFER_BYTES,
        "circuit_breakers": {"thresholds": [thresholds]},
        "load_assignment": {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _typed(name: str, type_name: str, settings: dict[str, Any]) -> dict[str, Any]:
    extension = f"type.googleapis.com/envoy.extensions.filters.{type_name}"
    return {"name": f"envoy.filters.{name}", "typed_config": {"@type": extension, **settings}}
