"""What an operator may say: the whole configuration as one frozen value (contract section 3).

The comment on or above a field is its reference documentation: `config/reference.md` is generated from this file.
`load.py` checks and fills these, so whoever holds a `Settings` holds a configuration without faults. Durations are
seconds as float, sizes are bytes as int; both are written with a unit in the file (`"30s"`, `"32MiB"`). Paths are
resolved against the file's folder, and secrets are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from config.values import (
    AtLeastOne,
    BaseUrl,
    ClaimPath,
    ClaimPaths,
    Count,
    Duration,
    DurationOrZero,
    Flag,
    KeepAliveInterval,
    KeyId,
    PathBeside,
    ReadableFile,
    ScanLimit,
    SecretValue,
    Share,
    Size,
    SomeOf,
    Text,
    WriteBuffer,
)

UnitName = Literal["deployment", "workspace", "team", "project", "collection", "user"]
IssuerKind = Literal["generic", "rfc9068", "keycloak", "entra", "okta", "auth0", "authentik", "dex", "google", "local"]
NarrowUnitName = Literal["workspace", "team", "project", "user"]
NamedSet = Literal["personal-data", "secrets"]
KeepAlive = Literal["off", "comment", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificate of a listener. Its files are looked at every 10 s: a renewed pair is shown to new connections."""

    certificate: ReadableFile  # PEM file: the certificate, then its chain.
    key: SecretValue  # PEM of the private key.
    # PEM file of the authorities whose client certificates are accepted (mutual TLS). With it clients are asked for
    # one, and need not show one: it only counts for access tokens that are bound to it (RFC 8705). A browser may ask
    # its user which certificate to show.
    client_ca: ReadableFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """The certificate that saltgate shows to a server that asks for one (mutual TLS)."""

    certificate: ReadableFile  # PEM file: the certificate, then its chain.
    key: SecretValue  # PEM of the private key.


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """What people and programs reach."""

    listen: str = "127.0.0.1:8080"  # Address and port, or unix:/path.
    # The address that clients use, without a path; every absolute URL comes from it, never from Host. Required unless
    # `listen` is loopback. https, or http on loopback.
    url: BaseUrl | None = None
    max_body: Size = 32 * 1024 * 1024  # A larger request body is refused with 413.
    # How much of an answer may wait in a worker for a client that takes it slowly. Above that the engine is not read,
    # until a quarter is left; what went over it comes on top: a read of 16 KiB, or one event. From "4KiB" to "16MiB".
    write_buffer: WriteBuffer = 16 * 1024
    tls: Tls | None = None  # Terminates TLS here.


@dataclass(frozen=True, slots=True, kw_only=True)
class Administrator:
    """People who see the pages of the admin listener, and who see and revoke the personal access tokens of others: with
    `saltgate pat list|revoke --subject …`, and by the API under `/account/tokens`, which is for programs. The account
    page in a browser shows each his own alone.
    """

    issuer: Text  # One of [[issuers]]: whose people they are.
    members: SomeOf[Text]  # user:SUBJECT or group:NAME. A group counts as long as the person's own sign-in names it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Health, metrics, and pages that show what happens, one listener for all workers. Never public."""

    listen: str = "127.0.0.1:9080"  # Address and port.
    # The address at which administrators open the pages, without a path: https, or http on loopback. Off loopback it is
    # required for the pages, and TLS is ended by a proxy in front of this listener. Absent on loopback: `listen`.
    url: BaseUrl | None = None
    # Bearer token for /metrics. Required unless `listen` is loopback. Without it, scrape by the name of this machine
    # (localhost, 127.0.0.1, [::1]) or that of `url`: a browser's page could be made to lead here by any other.
    metrics_token: SecretValue | None = None
    administrators: tuple[Administrator, ...] = ()  # Who sees and changes what is not his own.


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the pages of the admin listener show of the last two days. It is kept in memory by the process that starts
    the workers: with its defaults at most 60 MB, however many scopes there are.
    """

    # So many pairs of a scope and a model have numbers of their own, and each such scope its last 100 requests, at most
    # 10000. Beyond it, one that was idle for 15 minutes gives way; where there is none, what is new counts as "other".
    scopes: AtLeastOne = 500
    recent: AtLeastOne = 10_000  # So many single requests of all scopes can be found by their id, at most 100000.
    # Is it kept in the Redis of `[directory]`, too? Then it outlives a restart, and gates with the same Redis show one.
    # Names of scopes and models, numbers, and what is known of single requests stand there in clear, for 50 hours at
    # most; nothing of a prompt, no person and no secret. A Redis that is away changes nothing.
    redis: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedField:
    """A field of request bodies that clients may send to this engine beyond what its profile lets pass, at every
    endpoint but that which counts tokens. It takes plain values only: what stands in an object could not be decided. A
    field that the profile drops, refuses or passes already cannot be added (`proxy/engines/fields.md` lists them all),
    nor one whose name may speak of a salt, a cache, a transfer, media, an adapter, a session or the like
    (`proxy/engines/additions.py`).
    """

    name: Text  # As it stands in the body, of letters, digits and underscores.
    type: Literal["boolean", "integer", "number", "string"]  # A string has at most 1024 characters.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What one request may ask of this engine. More is refused with 400 and the field's name. A bound above the
    engine's own changes nothing: the engine refuses then.
    """

    n: AtLeastOne = 8  # Answers to one prompt; each is a request of its own to the engine's scheduler.
    prompts: AtLeastOne = 64  # Prompts in one /v1/completions.
    inputs: AtLeastOne = 2048  # Texts in one /v1/embeddings.
    logprobs: Count = 20  # Alternatives told per token (`logprobs`, `top_logprobs`).
    stop: Count = 16  # Stop strings, each of at most 1024 characters.
    # Tokens of one answer (`max_tokens` and its kin), where the client names a number. Absent: the model's length
    # bounds them.
    max_tokens: AtLeastOne | None = None
    schema_bytes: Size = 256 * 1024  # One schema, grammar or response format, in bytes of JSON.
    tools_bytes: Size = 1024 * 1024  # All tools of a request, in bytes of JSON.
    # Levels of objects and arrays in a schema or in tools. vLLM takes 64, and up to 8 wrap a schema.
    schema_depth: AtLeastOne = 72
    media_parts: AtLeastOne = 16  # With `media`: images in one request.
    media_bytes: Size = 8 * 1024 * 1024  # With `media`: one image, decoded, sent or fetched.
    fields: tuple[AddedField, ...] = ()  # Fields beyond the profile's.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimeouts:
    """How long saltgate waits at this engine, where `[timeouts]` says otherwise. The keys mean what they mean there;
    what is absent is as it is there.
    """

    connect: Duration | None = None  # A connection to a replica.
    first_byte: Duration | None = None  # From the request to the answer's beginning.
    idle: Duration | None = None  # Without anything of a running answer.
    total: DurationOrZero | None = None  # The whole answer; "0s" is no limit.
    stall: Duration | None = None  # A client that takes nothing.
    keep_alive: KeepAlive | None = None  # What a client hears while the engine is silent.
    keep_alive_interval: KeepAliveInterval | None = None  # How often.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimeouts(EngineTimeouts):
    """The same for some of the engine's models. What is absent is as the engine has it."""

    models: SomeOf[Text]  # The models' names, as clients write them.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapacity:
    """How many requests this engine is sent at once, and what waits here when it has them. vLLM takes any number and
    lets them wait in its own queue, in the order in which they came: a lower number keeps that queue short, so that
    workspaces, and inside them projects, get their turns here. Whoever sends more than its turns waits longer itself;
    where the queue is full, its own newest is refused. These are limits of all workers together; see `[capacity]`.
    """

    # Requests at once at each replica: the engine's limit is this, times the replicas that may be used now. One replica
    # may have up to half more while the others have less, where the prompts are at home there.
    requests: AtLeastOne = 8192
    waiting: Count = 1024  # Requests that wait for the engine; more are refused with 503 `engine_busy`.
    waiting_bytes: Size = 256 * 1024 * 1024  # What their bodies may hold in memory, all together.
    wait: Duration = 30.0  # Who has waited so long is refused with 503 `engine_busy`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine, in one or more replicas."""

    name: Text  # The engine's name in logs and metrics.
    # Which profile of endpoints and fields holds: `proxy/engines/fields.md`.
    kind: Literal["vllm", "sglang", "tensorrt-llm", "dynamo"] = "vllm"
    urls: SomeOf[BaseUrl]  # The replicas: http://…, https://…, or unix:/path.
    # The models that it serves; asked of the engine where absent. One model at two engines is a fault.
    models: SomeOf[Text] | None = None
    api_key: SecretValue | None = None  # Sent as bearer token to the engine; never the client's.
    # What to do with an endpoint that is not proven to separate by salt: refuse (strict), relay and warn (warn), or
    # never probe (off; loopback and unix engines only).
    proof: Literal["strict", "warn", "off"] = "strict"
    # May clients send images (`data:` URLs of image/gif, image/jpeg, image/png, image/webp) at /v1/chat/completions?
    # Each gets an identity that saltgate makes of the salt and the image, because the engine's caches of media know no
    # salt. For vllm only, and with proof "strict" only; what is proven of it stands in `proxy/threat-model.md`.
    media: Flag = False
    # With `media`: hosts that saltgate fetches images from where a client names them by an https:// address in place of
    # sending them; the engine sees the image and never the address. Each is compared as it is written: a whole name in
    # small letters, with a :port or without, no wildcard. Only public addresses of these names are used. Absent: no
    # address is fetched.
    media_hosts: SomeOf[Text] | None = None
    # The same for hosts of a private network (10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7) and of this machine:
    # names, or plain addresses. http:// is for localhost, 127.0.0.0/8 and ::1 only. Link-local addresses, where clouds
    # keep credentials, are never asked. Whoever may ask this engine's models can have any path of these hosts fetched.
    media_private_hosts: SomeOf[Text] | None = None
    media_private_ca: ReadableFile | None = None  # PEM file of the private authority of `media_private_hosts`.
    ca: ReadableFile | None = None  # PEM file of a private authority.
    client_cert: ClientCertificate | None = None  # Shown to the engine.
    # After that long a connection to a replica takes no further request, and the replica's name is looked up again:
    # where it leads elsewhere, what is there is proven and used instead. An answer that is running is never cut for it.
    connection_age: Duration = 300.0
    limits: EngineLimits = field(default_factory=EngineLimits)  # What one request may ask.
    timeouts: EngineTimeouts = field(default_factory=EngineTimeouts)  # How long saltgate waits.
    model_timeouts: tuple[ModelTimeouts, ...] = ()  # How long it waits for some models.
    capacity: EngineCapacity = field(default_factory=EngineCapacity)  # How many requests at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How people sign in at this issuer: with a browser at saltgate's own pages, and at a command line. At least one of
    `client_id` and `native_client_id`.
    """

    # The client that saltgate itself is: authorization code with PKCE. Under `public.url`, its redirect URI is
    # `/auth/callback`, its post-logout redirect URI `/auth/signed-out`, its back-channel logout URI
    # `/auth/backchannel-logout`. It may not be in `audiences`.
    client_id: Text | None = None
    # Makes its redirect URI `/auth/callback/NAME`. Where people sign in at several issuers, each of them needs one that
    # does not name itself in its answers (RFC 9207): else another of them could get its codes.
    callback: Text | None = None
    client_secret: SecretValue | None = None  # Sent to the token endpoint; without one a public client.
    scopes: SomeOf[Text] = ("openid", "profile")  # What saltgate's own pages ask for; openid is among them.
    # The public client of `saltgate login`: device grant, or authorization code with PKCE to a loopback address (any
    # port of http://127.0.0.1, path /callback). The gate tells it, with the two keys below, in its resource metadata.
    # Where the issuer's `clients` are listed, it must be among them.
    native_client_id: Text | None = None
    native_scopes: SomeOf[Text] = ("openid", "offline_access")  # What `saltgate login` asks for.
    # Whose access tokens `saltgate login` asks for (RFC 8707), where the issuer wants to be told.
    resource: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Introspection:
    """How opaque access tokens of this issuer are checked: it is asked about each of them (RFC 7662). Its other keys
    hold for its answers as for signed tokens; `aud` and `exp` must be in them. A signed token is never asked about, and
    nobody but the issuer is: which one that is says the workspace that the request names, unless only one has this.
    """

    client_id: Text  # The client that saltgate is at the introspection endpoint. It need not be in `clients`.
    # How that client proves itself, by the names of OpenID Connect Core section 9.
    client_auth: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] = "client_secret_basic"
    # Required for client_secret_basic and client_secret_post.
    client_secret: SecretValue | None = None
    client_key: SecretValue | None = None  # PEM of the private key. Required for private_key_jwt.
    # What `client_key` signs with: RS, PS or ES with 256, 384 or 512, or Ed25519.
    client_key_algorithm: Text = "ES256"
    client_key_id: Text | None = None  # The `kid` that is sent with it.
    endpoint: Text | None = None  # The introspection endpoint; from discovery where absent.
    # How long an answer "active" serves, at most "30s" and never past the token's `exp`: a token that is revoked at the
    # issuer is refused that much later. The answer that it is not active serves for 5 s.
    cache: Duration = 30.0
    # Clients that act for themselves (client credentials). Where an answer about a token of theirs names neither a
    # subject nor a user name, the subject is the client id. Of any other client such an answer is refused.
    service_accounts: SomeOf[Text] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """One OpenID Provider whose access tokens are accepted."""

    issuer: Text  # The issuer identifier, compared byte for byte. https, or http on loopback.
    # A preset for the keys below; each can be set on its own. "local" is more: `saltgate serve` runs the issuer itself,
    # for one owner on one machine. Its keys and its owner are kept in the folder `local-issuer-PORT`, in
    # `directory.state` where that is set, else beside the configuration; the first start tells the owner's password on
    # standard error.
    kind: IssuerKind = "generic"
    audiences: SomeOf[Text]  # At least one of them must be in the token's `aud`. None may also be in `clients`.
    # The accepted clients (claims azp, client_id, cid, appid). Absent: any. Required for authentik and dex.
    clients: SomeOf[Text] | None = None
    # The accepted signature algorithms, asymmetric only: RS, PS and ES with 256, 384 or 512, EdDSA, Ed25519.
    algorithms: SomeOf[Text] = ("RS256", "ES256")
    token_types: SomeOf[str] = ("at+jwt",)  # The accepted header `typ`, "" for none sent.
    jwks_uri: Text | None = None  # Where the keys are; from discovery where absent.
    subject: ClaimPath = ("sub",)  # Path of the claim that names the caller, a list of literal names.
    # Paths of the claims that list the groups. One path is a list of literal names, several are a list of such lists;
    # their groups are united. An empty list: the tokens name no groups.
    groups: ClaimPaths = (("groups",),)
    leeway: DurationOrZero = 30.0  # How far clocks may differ, at most "5m".
    # Whether nonce, at_hash and c_hash are tolerated in access tokens, as Dex and Authentik send them.
    allow_id_token_claims: Flag = False
    payload_type: Text | None = None  # The required payload `typ` (Keycloak: Bearer; bound by DPoP, DPoP).
    max_lifetime: Duration = 25 * 3600.0  # A token with a longer life between iat and exp is refused.
    ca: ReadableFile | None = None  # PEM file of a private authority.
    client_cert: ClientCertificate | None = None  # Shown to the issuer.
    login: Login | None = None  # People may sign in with a browser or a command line.
    introspection: Introspection | None = None  # Opaque access tokens are accepted, too.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How long people who signed in with a browser stay signed in at saltgate's own pages."""

    idle: Duration = 8 * 3600.0  # A session that is not used for so long ends.
    absolute: Duration = 24 * 3600.0  # Every session ends after so long, at most "720h".


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Where memberships live. Exactly one of `redis` and `file`."""

    redis: str | None = None  # redis://, rediss://, unix://; without a password.
    username: Text | None = None  # The Redis user, where it is not the default one.
    password: SecretValue | None = None  # The Redis password.
    # A directory file, for one machine without Redis. Commands that change memberships write it anew, without comments.
    file: PathBeside | None = None
    # With `file`: the folder where the salt ring, raises, blocks and personal access tokens live.
    state: PathBeside | None = None
    # How long known memberships serve while the directory cannot be confirmed.
    max_stale: DurationOrZero = 300.0
    ca: ReadableFile | None = None  # PEM file of a private authority.
    client_cert: ClientCertificate | None = None  # Shown to Redis.


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationKey:
    """One key of the ring."""

    id: KeyId  # [A-Za-z0-9_-]{1,32}; part of the salt, so public.
    secret: SecretValue  # 32 bytes or more.


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationRule:
    """A rule that gives a request with sensitive content a narrower border, while all others keep sharing. It needs at
    least one of `words`, `patterns` and `sets`, looks at every text of the request, and never widens or refuses. What
    it finds and what it cannot is told in `proxy/isolation/narrowing.md`."""

    name: str  # [a-z0-9][a-z0-9-]{0,31}; stands in metrics, logs and spans where the rule matched.
    workspaces: SomeOf[Text] | None = None  # The workspaces where it holds. Absent: all.
    words: SomeOf[Text] | None = None  # Words and phrases, found as whole words in any case.
    # Regular expressions in RE2 syntax, which have no lookaround and no back references. `^` and `$` are the ends of a
    # line. Upper and lower case differ unless a pattern begins with `(?i)`.
    patterns: SomeOf[Text] | None = None
    # Ready-made patterns: "personal-data" (e-mail addresses, phone numbers, IBANs, payment cards, national ids) and
    # "secrets" (private keys, access tokens, passwords).
    sets: SomeOf[NamedSet] | None = None
    unit: NarrowUnitName = "user"  # The border of a request in which it finds something; a narrower one stays.


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The border and its keys."""

    unit: UnitName = "project"  # The default border.
    show_reuse: Flag = True  # May clients see how many of their prompt tokens were reused?
    # Does a unit get a new salt when a member or project is removed from it, or a member is blocked? What was cached
    # with them is then never reused again. Only for what saltgate's own commands and the directory file remove.
    raise_on_removal: Flag = False
    # Where rules hold, a request with more JSON than this is not looked at: it gets the narrowest border that a rule
    # there may give. At most "8MiB".
    scan_limit: ScanLimit = 1024 * 1024
    keys: SomeOf[IsolationKey]  # The first is current; the others stay for units that still use them.
    rules: tuple[IsolationRule, ...] = ()  # What makes a request's border narrower by its content.


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """What stands between clients and saltgate. What it says of a client is believed; of anybody else it is ignored."""

    # Their addresses or networks, such as "10.0.0.0/8"; "unix" is whoever connects to a Unix socket of `public.listen`.
    trusted: tuple[str, ...] = ()
    # The header in which they pass the certificate that a client showed to them, as RFC 9440 has it: the DER in base64
    # between two colons. They must take a header of that name out of what comes from clients.
    client_certificate_header: Text | None = None
    # The header in which they tell the client's address: "Forwarded" (RFC 7239) or "X-Forwarded-For". They must add to
    # it, or set it, and take out no other word of their own. Of several proxies in a row list all: the first that is
    # not listed, from here outwards, is the client.
    client_address_header: Literal["Forwarded", "X-Forwarded-For"] | None = None
    # Do they begin each connection with a header of the PROXY protocol (version 1 or 2), before TLS? Then one without
    # is closed, and what it tells is where the connection comes from: for both headers above, too, which such balancers
    # pass on as clients wrote them. Of a connection of which they tell no address neither header is believed.
    proxy_protocol: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cors:
    """Web pages whose scripts may call the endpoints under /v1 with a token of their own (CORS). Cookies never count
    there, and saltgate's own pages let no other page in.
    """

    # The pages' origins as browsers send them, compared byte for byte, for example "https://chat.example.com". Absent:
    # none. There is no "*", and "null" is nobody's own.
    origins: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What this saltgate does at once. Limits here and in `[engines.capacity]` are of all workers together. Workers
    share no memory: each keeps to an equal part, so a limit is never passed (but each worker may have one), and where
    one worker has more of the load than another, it lets wait or refuses while the other still has room. Connections
    are spread evenly; requests on them need not be, so where a limit is small, so should be the number of workers.
    While a reload lets the workers before it finish, both keep their parts.
    """

    requests: AtLeastOne = 16384  # Requests at all engines at once.
    # Client connections. Absent: 16384 for each worker, or as many as the limit of open files allows: each may need a
    # second one to an engine. They count from their first moment, before TLS. Where a worker has as many, those that
    # wait for a request or for the end of their TLS handshake are closed, the longest waiting first; where none does,
    # the new one is closed without an answer.
    connections: AtLeastOne | None = None
    # Those from one address, or from one /64 of IPv6. More are closed without an answer. Absent: three of four. The
    # address is that of the connection, or what the PROXY protocol says of it: of any other front it is the front's
    # own, so this does not count for addresses that `[proxies] trusted` lists, nor on a Unix socket.
    connections_per_address: AtLeastOne | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What happens to open requests at SIGTERM, and to those of the workers before at a reload (SIGHUP)."""

    limit: DurationOrZero = 300.0  # Open streams may finish that long; then they end with an error event.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long saltgate waits, and for what. What `[engines.timeouts]` has too can be set per engine there, and for
    some of its models in `[[engines.model_timeouts]]`.

    An engine that is too slow is a 504 before its answer begins, and the error event of the protocol after that; either
    way its connection is closed, so that it stops. The time in which the client does not take what is there is none of
    the engine's.
    """

    connect: Duration = 5.0  # A connection to a replica. Then the next one is tried; where none is left, it is a 503.
    # From the request to the first token of a stream, or to the first byte of another answer: long prompts queue and
    # prefill. Neither the head of a stream nor a comment in it is a beginning: an engine sends both before it computes.
    first_byte: Duration = 600.0
    # Without an event, once a stream's tokens come, or without a byte of another answer. A comment is no event: an
    # engine whose scheduler hangs may still send its own keep-alive. It is found up to a quarter of this time later.
    idle: Duration = 300.0
    # The whole answer, from when it is the engine's turn, and also where it goes on well; "0s" is no limit.
    total: DurationOrZero = 0.0
    # A client that takes nothing that long while bytes wait for it is cut. It is found up to as long again later.
    stall: Duration = 120.0
    # What a client hears while a stream's engine is silent, so that nothing between them takes the connection for dead.
    # "comment" is a comment, which every client passes over. "event" is an event that says nothing, for clients that
    # count events only: an empty chunk for chat and completions, `ping` for messages; for responses, whose protocol has
    # none, it is a comment. It comes after the engine's head, between two events, and only while the limits above hold.
    keep_alive: KeepAlive = "off"
    keep_alive_interval: KeepAliveInterval = 15.0  # No silence is longer; at least "1s".
    # What the FIN of a client means while its stream runs: it is gone, or perhaps it only has nothing more to send.
    # "probe" writes one comment between two events, and looks at 50 ms, 200 ms, 1 s and then every second whether the
    # client answered with RST. Before the answer's head, without a stream and over TLS, FIN always means gone.
    half_close: Literal["gone", "probe"] = "gone"
    request: Duration = 60.0  # A client's request, head and body, must have arrived by then.
    media: Duration = 10.0  # All images of a request that saltgate fetches (`media_hosts`) must be there by then.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTraces:
    """The share of traces that are kept of a workspace, or of one of its projects. A project's own counts before its
    workspace's.
    """

    workspace: Text  # The workspace's name in the directory.
    project: Text | None = None  # One of its projects. Absent: all that have no entry of their own.
    trace_ratio: Share  # As `telemetry.trace_ratio`.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedCaller:
    """A caller whose traces go on here, such as an application's own backend: the span that he names in `traceparent`
    becomes the parent of saltgate's, whether he records the trace decides whether saltgate and the engine do, and his
    `tracestate` goes on to the engine. Who is trusted can have every request of his recorded, and can put spans into
    any trace whose id he knows. `traceparent` of anybody else becomes a link to a trace of saltgate's own. Exactly one
    of `client` and `subject`.
    """

    issuer: Text  # One of [[issuers]].
    client: Text | None = None  # Whoever comes with this client, as the field `client` of the log line tells it.
    subject: Text | None = None  # One caller, as `saltgate explain` names him.


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """OpenTelemetry. Without an endpoint nothing is exported; metrics are always at /metrics. What each measure means
    is told in `observability/definitions.md`.
    """

    otlp_endpoint: BaseUrl | None = None  # OTLP/HTTP base address, for example http://127.0.0.1:4318.
    # Lines of `name: value`, sent with each export and nowhere else: a collector that redirects is not followed.
    otlp_headers: SecretValue | None = None
    otlp_ca: ReadableFile | None = None  # PEM file of the collector's private authority.
    otlp_client_cert: ClientCertificate | None = None  # Shown to the collector.
    service_name: Text = "saltgate"  # Resource attribute service.name.
    # Do the spans and lines of requests tell the client's address (`client.address`)? Off, because it is a person's,
    # and what saltgate keeps of a request names no person. The person's subject is in none of them either.
    client_address: Flag = False
    # With this key, 32 bytes or more, spans and lines tell a pseudonym of the caller (`user.hash`): HMAC-SHA-256 of
    # issuer and subject. The same person has the same one as long as the key is; without it nobody can tell whose it
    # is. Absent: none is told.
    user_hash_key: SecretValue | None = None
    # The share of ordinary requests whose trace is kept, 0 to 1. Failed and slow ones always are, but the engine only
    # makes a span of its own for this share: it is asked before anybody knows how a request will end.
    trace_ratio: Share = 1.0
    scopes: tuple[ScopeTraces, ...] = ()  # Where another share is kept.
    slow_first_token: DurationOrZero = 5.0  # A stream whose first token takes so long is slow; "0s": none is.
    slow_request: DurationOrZero = 0.0  # So is any request that takes so long in all; "0s": none is.
    trusted_callers: tuple[TrustedCaller, ...] = ()  # Whose traces go on here.
    # Do the traces of whatever comes from one of `[proxies] trusted` go on here, too? They must begin a trace for each
    # request, or take `traceparent` out of what clients send: else every client is trusted with it.
    trusted_proxies: Flag = False
    # OpenTelemetry's names for what a model call is are being changed. "1.41" are those that backends know now, "dev"
    # those of their new repository (semantic-conventions-genai). `saltgate.*` never changes with it.
    genai_conventions: Literal["1.41", "dev"] = "1.41"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What /metrics tells of scopes and models: a series for each thing that is counted of each, within bounds.

    A scope has 16 series a model. For each 1000 scopes with two models count 3 MB in saltgate, 3.4 MB and 25 ms more a
    scrape, and 0.1 GB in Prometheus; `compose/runbook.md` has a table.
    """

    max_scopes: AtLeastOne = 1000  # How many scopes have series of their own, at most 100000. Others: `__other__`.
    max_models: AtLeastOne = 100  # The same of models, at most 10000.
    # When max_scopes or max_models is reached, one that had no request for so long makes room; its series end.
    idle: Duration = 3600.0
    # What workspaces and projects are called in metrics: by their names, or by names that only the holder of
    # `pseudonym_key` can make, the first 12 hex digits of HMAC-SHA-256(key, "WORKSPACE" or "WORKSPACE/PROJECT").
    # Spans, log lines, the audit and the pages name scopes in clear all the same: links from a metric to traces by
    # its workspace then find nothing.
    scope_labels: Literal["plain", "pseudonymous"] = "plain"
    pseudonym_key: SecretValue | None = None  # Required with "pseudonymous": 32 bytes or more.
    # Are metrics also sent to `[telemetry] otlp_endpoint`, all of them once an `otlp_interval`? A sum that a dead
    # collector missed is in the next export. /metrics is there all the same.
    otlp: Flag = False
    otlp_interval: Duration = 60.0  # At least "1s".


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Log lines on standard output."""

    format: Literal["json", "human"] = "json"  # One JSON object a line, or text for people.
    level: Literal["debug", "info", "warning", "error"] = "info"  # The least level that is written.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditKey:
    """One key of the audit. Whoever has it can write lines that look like saltgate's: keep it from whoever may change
    the files.
    """

    id: KeyId  # [A-Za-z0-9_-]{1,32}; each line names the key that sealed it.
    secret: SecretValue  # 32 bytes or more, and none of [[isolation.keys]]; `saltgate keys new` makes one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Who was let in to what, in files that nobody without the key can change unnoticed; `observability/audit.md` tells
    all of it. Without `directory` there is none.
    """

    # Where the files are, on a disk with locks. Several saltgates may share one. `saltgate` commands that change
    # something write there, too, so run them as the same user.
    directory: PathBeside | None = None
    # Where each worker keeps what is running now, 1 KiB a request that may be at an engine. Absent: in `directory`. A
    # place in memory that outlives the process (tmpfs, an emptyDir of medium Memory) is quicker than a busy disk.
    journal: PathBeside | None = None
    # The first seals; the others are for lines that they have sealed, and to find people in these.
    keys: tuple[AuditKey, ...] = ()
    # What happens to requests while lines cannot be written: refused with 503 `audit_unavailable` before anything is
    # sent to an engine, or served, with the lost lines counted.
    on_failure: Literal["refuse", "continue"] = "refuse"
    # How people are named: by a pseudonym that only the key makes, or by their subject. `saltgate audit show --subject`
    # finds a person either way.
    subjects: Literal["pseudonym", "plain"] = "pseudonym"
    sync_interval: Duration = 0.05  # Lines gather for so long and are made durable together; 10s at most.
    segment_size: Size = 64 * 1024**2  # A file is sealed when it has so much,
    segment_age: Duration = 24 * 3600.0  # or is so old.
    retention: Duration = 400 * 24 * 3600.0  # Sealed files whose last line is so old are removed, once an hour.
    otlp: Flag = False  # Does [telemetry] otlp_endpoint get the lines as OpenTelemetry logs, too? It may lose some.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Personal access tokens, which people make for programs that take only a fixed key."""

    # Groups count for a token as long as its owner's last sign-in at /account or with `saltgate pat` is no older. After
    # that, memberships through groups rest until he signs in again; those of the person himself stay.
    groups_max_age: Duration = 24 * 3600.0
    max_lifetime: Duration = 365 * 24 * 3600.0  # What an owner may ask for, at most "8760h".
    default_lifetime: Duration = 90 * 24 * 3600.0  # What he gets where he asks for nothing.
    per_owner: AtLeastOne = 50  # How many tokens one person may have at a time, at most 1000.


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontGate:
    """A saltgate in front of this one: its engine is this gate, and its engine's `api_key` a token of this subject.

    Its salt is never used as it comes. It narrows: what that gate keeps apart is kept apart here, inside the unit that
    the subject has here. Without this entry a salt from outside is dropped, as always, and the gate in front finds by
    its proof that its borders would be lost.
    """

    issuer: Text  # One of [[issuers]].
    subject: Text  # The caller, as `saltgate explain` names it. It must be a member of exactly one project.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedFront:
    """A chat UI that holds one credential for all its people, and says with a signed assertion for whom it asks. Where
    it can forward each person's own access token, let it do that instead: then it needs no entry.

    Its people are `user:front:NAME/SUBJECT` in the directory, of the front's own issuer, and members of no group.
    Without a good assertion, no older than 5 minutes, the front is refused: it never acts as itself. Whoever knows the
    secret and has the front's credential can ask as any of its people; nobody can with only one of the two.
    `proxy/clients.md` shows how Open WebUI is set up.
    """

    name: Text  # [a-z0-9][a-z0-9-]{0,31}; part of its people's names.
    issuer: Text  # One of [[issuers]]: of the front's own credential, and of the workspaces' people.
    # The front's own service account, as `saltgate explain` names it before this entry is there.
    subject: Text
    workspaces: SomeOf[Text]  # The only ones in which it may speak for people.
    # The key of the assertions' HMAC (HS256), 32 bytes or more and used for nothing else; Open WebUI's
    # FORWARD_USER_INFO_HEADER_JWT_SECRET.
    secret: SecretValue
    header: Text = "X-OpenWebUI-User-Jwt"  # The request header that holds the assertion.
    assertion_issuer: Text = "open-webui"  # The assertion's `iss`, compared byte for byte.
    # Path of the claim that names the person, a list of literal names. What people can change themselves, such as an
    # e-mail address in many UIs, is no name.
    subject_claim: ClaimPath = ("sub",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration."""

    workers: Count = 1  # Processes that share the public port, at most 1024; 0 = one per core.
    # Does a running answer end when its caller is blocked or removed, or when his session or token is ended or revoked?
    # Else it runs to its end, and only the next request is refused.
    streams_end_on_revoke: Flag = True
    public: Public = field(default_factory=Public)
    admin: Admin = field(default_factory=Admin)
    history: History = field(default_factory=History)
    engines: SomeOf[Engine]
    issuers: SomeOf[Issuer]
    sessions: Sessions = field(default_factory=Sessions)
    directory: Directory
    isolation: Isolation
    capacity: Capacity = field(default_factory=Capacity)
    drain: Drain = field(default_factory=Drain)
    timeouts: Timeouts = field(default_factory=Timeouts)
    telemetry: Telemetry = field(default_factory=Telemetry)
    metrics: Metrics = field(default_factory=Metrics)
    logs: Logs = field(default_factory=Logs)
    audit: Audit = field(default_factory=Audit)
    tokens: Tokens = field(default_factory=Tokens)
    gates: tuple[FrontGate, ...] = ()
    proxies: Proxies = field(default_factory=Proxies)
    cors: Cors = field(default_factory=Cors)
    fronts: tuple[TrustedFront, ...] = ()
