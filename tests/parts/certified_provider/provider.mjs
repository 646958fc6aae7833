// A test issuer on panva/oidc-provider, set up to be adversarial. Loopback only, never for production.
//   node provider.mjs [--port 9090] [--issuer http://127.0.0.1:9090] [--gateway http://127.0.0.1:8080]
// Resource indicators select the *flavour* of access token (RFC 8707 `resource=`):
//   urn:llm-gateway            at+jwt RS256, groups[]          (RFC 9068 style)
//   urn:llm-gateway:es256      at+jwt ES256
//   urn:llm-gateway:eddsa      at+jwt EdDSA
//   urn:llm-gateway:keycloak   typ=JWT RS256, aud array, azp, realm_access.roles, resource_access
//   urn:llm-gateway:entra      typ=JWT RS256, aud GUID, oid/tid/ver/scp/roles/groups(GUID) or overage (_claim_names)
//   urn:llm-gateway:opaque     opaque; RFC 7662 introspection
//   urn:other-api              at+jwt for ANOTHER audience (must be refused by the gateway)
// Admin (loopback, header x-admin: test):
//   GET  /admin/state | POST /admin/rotate?alg=RS256&mode=publish|promote|retire|instant
//   POST /admin/fault?path=jwks|discovery|token|introspection&mode=503|hang|garbage|off[&ms=..]
//   POST /admin/user?name=bob&disabled=1|0   GET /admin/hits
import http from 'node:http';
import { generateKeyPairSync, randomBytes, createHash } from 'node:crypto';
import { Provider } from 'oidc-provider';

const arg = (n, d) => { const i = process.argv.indexOf(`--${n}`); return i > 0 ? process.argv[i + 1] : (process.env[`IDP_${n.toUpperCase()}`] ?? d); };
const PORT = Number(arg('port', 9090));
const ISSUER = arg('issuer', `http://127.0.0.1:${PORT}`);
const GATEWAY = arg('gateway', 'http://127.0.0.1:8080');
const AT_TTL = Number(arg('at-ttl', 300));
const TENANT = '11111111-2222-3333-4444-555555555555';
const ENTRA_APP = 'aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee';

const USERS = {
  alice: { sub: 'u-alice-0001', password: 'alice-pw', name: 'Alice Example', email: 'alice@example.test', groups: ['eng', 'llm-users', 'llm-premium'], roles: ['llm-user', 'llm-admin'], oid: '0a11ce00-0000-4000-8000-000000000001', groupIds: ['90000000-0000-4000-8000-000000000001', '90000000-0000-4000-8000-000000000002'] },
  bob: { sub: 'u-bob-0002', password: 'bob-pw', name: 'Bob Example', email: 'bob@example.test', groups: ['finance', 'llm-users'], roles: ['llm-user'], oid: '0b0b0000-0000-4000-8000-000000000002', groupIds: Array.from({ length: 220 }, (_, i) => `91000000-0000-4000-8000-${String(i).padStart(12, '0')}`) },
};
const bySub = (sub) => Object.values(USERS).find((u) => u.sub === sub);

// ---- keys and rotation -------------------------------------------------------------------
let seq = 0;
function newKey(alg) {
  const kind = { RS256: ['rsa', { modulusLength: 2048 }], ES256: ['ec', { namedCurve: 'P-256' }], EdDSA: ['ed25519', {}] }[alg];
  const jwk = generateKeyPairSync(kind[0], kind[1]).privateKey.export({ format: 'jwk' });
  return { ...jwk, use: 'sig', alg, kid: `${alg.toLowerCase()}-${++seq}-${randomBytes(3).toString('hex')}` };
}
let keys = [newKey('RS256'), newKey('ES256'), newKey('EdDSA')];

// ---- clients -----------------------------------------------------------------------------
const loop = { application_type: 'native' };
const clients = [
  { client_id: 'gateway-web', client_secret: 'gateway-web-secret', redirect_uris: [`${GATEWAY}/auth/callback`], post_logout_redirect_uris: [`${GATEWAY}/auth/signed-out`], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], backchannel_logout_uri: `${GATEWAY}/auth/backchannel-logout`, backchannel_logout_session_required: true },
  { client_id: 'chat-ui', token_endpoint_auth_method: 'none', redirect_uris: ['http://127.0.0.1:3000/oauth/oidc/callback'], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'] },
  { client_id: 'gateway-cli', token_endpoint_auth_method: 'none', ...loop, redirect_uris: ['http://127.0.0.1/callback'], grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'], response_types: ['code'] },
  { client_id: 'dpop-cli', token_endpoint_auth_method: 'none', ...loop, redirect_uris: ['http://127.0.0.1/callback'], grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'], response_types: ['code'], dpop_bound_access_tokens: true },
  { client_id: 'svc-batch', client_secret: 'svc-batch-secret', redirect_uris: [], response_types: [], grant_types: ['client_credentials'] },
  { client_id: 'gateway-rs', client_secret: 'gateway-rs-secret', redirect_uris: [], response_types: [], grant_types: [] },
];
// The public key of a client that introspects with private_key_jwt, where a test has one.
const RS_JWK = arg('rs-jwk');
if (RS_JWK) clients.push({ client_id: 'gateway-rs-key', token_endpoint_auth_method: 'private_key_jwt', jwks: { keys: [JSON.parse(RS_JWK)] }, redirect_uris: [], response_types: [], grant_types: [] });
const SERVICE_ROLES = { 'svc-batch': { groups: ['svc-batch'], roles: ['llm-service'] } };

const SCOPES = 'llm.chat llm.embed llm.admin';
const RESOURCES = {
  'urn:llm-gateway': { audience: 'llm-gateway', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } },
  'urn:llm-gateway:es256': { audience: 'llm-gateway', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } },
  'urn:llm-gateway:eddsa': { audience: 'llm-gateway', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'EdDSA' } } },
  'urn:llm-gateway:keycloak': { audience: 'llm-gateway', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } },
  'urn:llm-gateway:entra': { audience: ENTRA_APP, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } },
  'urn:llm-gateway:opaque': { audience: 'llm-gateway', accessTokenFormat: 'opaque' },
  'urn:other-api': { audience: 'other-api', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } },
};

const config = {
  clients,
  cookies: { keys: [randomBytes(32).toString('hex')] },
  claims: { openid: ['sub'], profile: ['name', 'preferred_username'], email: ['email', 'email_verified'], groups: ['groups'] },
  scopes: ['openid', 'offline_access', 'profile', 'email', 'groups'],
  conformIdTokenClaims: false, // put profile/group claims straight into the ID token, as Keycloak/Entra/Okta do
  clientBasedCORS: () => true,
  pkce: { required: (ctx, c) => c.clientAuthMethod === 'none' || c.clientId === 'gateway-web' },
  features: {
    devInteractions: { enabled: false },
    backchannelLogout: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    introspection: { enabled: true, allowedPolicy: async (ctx, client) => client.clientId.startsWith('gateway-rs') || client.clientId === 'gateway-web' },
    revocation: { enabled: true },
    rpInitiatedLogout: { enabled: true },
    dPoP: { enabled: true, allowReplay: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: async (ctx, client, oneOf) => (Array.isArray(oneOf) ? oneOf[0] : undefined),
      useGrantedResource: async () => true,
      getResourceServerInfo: async (ctx, indicator) => {
        const r = RESOURCES[indicator];
        if (!r) { const { errors } = await import('oidc-provider'); throw new errors.InvalidTarget(); }
        return { scope: SCOPES, accessTokenTTL: AT_TTL, ...r };
      },
    },
  },
  ttl: { AccessToken: (c, t) => t.resourceServer?.accessTokenTTL ?? AT_TTL, ClientCredentials: (c, t) => t.resourceServer?.accessTokenTTL ?? AT_TTL, IdToken: 300, RefreshToken: 86400, Session: 86400, Grant: 86400, Interaction: 600, DeviceCode: 300 },
  issueRefreshToken: async (ctx, client, src) => client.grantTypeAllowed('refresh_token') && src.scopes.has('offline_access'),
  findAccount: async (ctx, sub) => {
    const [login, u] = Object.entries(USERS).find(([, x]) => x.sub === sub) ?? [];
    if (!u || u.disabled) return undefined;
    return { accountId: sub, claims: async () => ({ sub, name: u.name, preferred_username: login, email: u.email, email_verified: true, groups: u.groups }) };
  },
  // first-party clients: grant what was asked, no consent page (device flow and code flow alike)
  loadExistingGrant: async (ctx) => {
    const { client, session, provider } = ctx.oidc;
    if (!session?.accountId) return undefined;
    const id = ctx.oidc.result?.consent?.grantId || session.grantIdFor(client.clientId);
    const grant = (id && await provider.Grant.find(id)) || new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    if (ctx.oidc.requestParamOIDCScopes?.size) grant.addOIDCScope([...ctx.oidc.requestParamOIDCScopes].join(' '));
    for (const [ind, rs] of Object.entries(ctx.oidc.resourceServers ?? {})) {
      const want = [...ctx.oidc.requestParamScopes].filter((s) => rs.scopes.has(s)).join(' ');
      if (want) grant.addResourceScope(ind, want);
    }
    await grant.save();
    return grant;
  },
  extraTokenClaims: async (ctx, token) => {
    const who = token.accountId ? bySub(token.accountId) : SERVICE_ROLES[token.clientId];
    if (!who) return undefined;
    const rs = token.resourceServer?.identifier();
    if (rs === 'urn:llm-gateway:opaque') return { groups: who.groups, username: who.email };
    if (!rs?.includes('keycloak') && !rs?.includes('entra')) return { groups: who.groups };
    return undefined;
  },
  formats: { customizers: { jwt: async (ctx, token, jwt) => {
    const rs = token.resourceServer?.identifier();
    const p = jwt.payload; const user = token.accountId && bySub(token.accountId); const who = user || SERVICE_ROLES[token.clientId] || { groups: [], roles: [] };
    if (rs === 'urn:llm-gateway:keycloak') {
      jwt.header = { typ: 'JWT' };
      Object.assign(p, { aud: ['llm-gateway', 'account'], typ: 'Bearer', azp: p.client_id, acr: '1', realm_access: { roles: ['default-roles-acme', ...who.roles] }, resource_access: { 'llm-gateway': { roles: who.roles } }, groups: who.groups.map((g) => `/${g}`), preferred_username: user ? Object.keys(USERS).find((k) => USERS[k] === user) : `service-account-${p.client_id}` });
      delete p.client_id; // Keycloak: only azp (client_id appears for service accounts via mapper)
    } else if (rs === 'urn:llm-gateway:entra') {
      jwt.header = { typ: 'JWT' };
      Object.assign(p, { ver: '2.0', tid: TENANT, azp: p.client_id, nbf: p.iat, uti: p.jti });
      if (user) { p.oid = user.oid; p.scp = p.scope; p.sub = createHash('sha256').update(`${user.oid}${ENTRA_APP}`).digest('base64url'); p.preferred_username = user.email; p.roles = who.roles;
        if (user.groupIds.length > 200) { p._claim_names = { groups: 'src1' }; p._claim_sources = { src1: { endpoint: `https://graph.windows.net/${TENANT}/users/${user.oid}/getMemberObjects` } }; } else p.groups = user.groupIds;
      } else { p.oid = p.sub; p.roles = who.roles; p.idtyp = 'app'; }
      delete p.client_id; delete p.scope; delete p.jti;
    }
  } } },
  interactions: { url: (ctx, i) => `/interaction/${i.uid}` },
  renderError: async (ctx, out) => { ctx.type = 'json'; ctx.body = out; },
  // oidc-provider refuses outgoing requests (backchannel logout, jwks_uri) to loopback (SSRF guard);
  // strip its dispatcher, else a logout_token never reaches 127.0.0.1.
  fetch: (url, options) => { const o = { ...options }; delete o.dispatcher; return globalThis.fetch(url, o); },
};

const hits = {}; const faults = {};
let provider; let callback;
function build() {
  provider = new Provider(ISSUER, { ...config, jwks: { keys: structuredClone(keys) } });
  for (const ev of ['server_error', 'grant.error', 'authorization.error', 'backchannel.error', 'backchannel.success', 'introspection.error', 'access_token.issued']) {
    provider.on(ev, (...a) => { const e = a.find((x) => x instanceof Error); hits[`ev:${ev}`] = (hits[`ev:${ev}`] ?? 0) + 1; if (e && process.env.IDP_DEBUG) console.error(ev, e.message, e.error_description ?? '', e.cause ?? ''); });
  }
  callback = provider.callback();
}
build();

const html = (res, body, code = 200) => { res.writeHead(code, { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' }); res.end(`<!doctype html><meta charset=utf-8><title>Test IdP</title>${body}`); };
const json = (res, o, code = 200) => { res.writeHead(code, { 'content-type': 'application/json' }); res.end(JSON.stringify(o, null, 1)); };
const readForm = (req) => new Promise((ok) => { let b = ''; req.on('data', (c) => { b += c; if (b.length > 65536) req.destroy(); }); req.on('end', () => ok(new URLSearchParams(b))); });
const esc = (s) => String(s).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

async function interaction(req, res, uid) {
  const details = await provider.interactionDetails(req, res);
  const { prompt, params } = details;
  if (prompt.name === 'login') {
    if (req.method === 'GET') return html(res, `<h1>Sign in</h1><p>Client: ${esc(params.client_id)}</p><form method=post action="/interaction/${uid}"><input name=username value="${esc(params.login_hint ?? '')}" autofocus> <input name=password type=password> <button>Sign in</button></form>`);
    const f = await readForm(req); const u = USERS[f.get('username')];
    if (!u || u.disabled || u.password !== f.get('password')) return html(res, `<p class=error>invalid credentials</p><form method=post action="/interaction/${uid}"><input name=username><input name=password type=password><button>Sign in</button></form>`, 401);
    return provider.interactionFinished(req, res, { login: { accountId: u.sub, amr: ['pwd'], remember: true } }, { mergeWithLastSubmission: false });
  }
  if (prompt.name === 'consent') { // only reached when prompt=consent is asked for
    const grant = new provider.Grant({ accountId: details.session.accountId, clientId: params.client_id });
    if (prompt.details.missingOIDCScope) grant.addOIDCScope(prompt.details.missingOIDCScope.join(' '));
    for (const [i, s] of Object.entries(prompt.details.missingResourceScopes ?? {})) grant.addResourceScope(i, s.join(' '));
    return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
  }
  return html(res, `unsupported prompt ${esc(prompt.name)}`, 501);
}

async function admin(req, res, u) {
  if (req.headers['x-admin'] !== 'test') return json(res, { error: 'forbidden' }, 403);
  const q = u.searchParams;
  switch (`${req.method} ${u.pathname}`) {
    case 'GET /admin/state': return json(res, { kids: keys.map((k) => k.kid), faults, users: Object.fromEntries(Object.entries(USERS).map(([k, v]) => [k, { disabled: !!v.disabled, groups: v.groups }])) });
    case 'GET /admin/hits': return json(res, hits);
    case 'POST /admin/rotate': {
      const alg = q.get('alg') ?? 'RS256'; const mode = q.get('mode') ?? 'instant';
      const same = keys.filter((k) => k.alg === alg); const rest = keys.filter((k) => k.alg !== alg);
      // publish: new key appended (not yet signing); promote: newest signs, old still published;
      // retire: drop all but the signing key; instant: new key only, old one gone at once (compromise)
      let next;
      if (mode === 'publish') next = [...same, newKey(alg)];
      else if (mode === 'promote') next = [same.at(-1), ...same.slice(0, -1)];
      else if (mode === 'retire') next = [same[0]];
      else next = [newKey(alg)];
      keys = [...rest, ...next]; build();
      return json(res, { alg, mode, kids: next.map((k) => k.kid) });
    }
    case 'POST /admin/fault': { if (q.get('mode') === 'off') delete faults[q.get('path')]; else faults[q.get('path')] = { mode: q.get('mode'), ms: Number(q.get('ms') ?? 30000) }; return json(res, faults); }
    case 'POST /admin/user': { USERS[q.get('name')].disabled = q.get('disabled') === '1'; return json(res, { ok: true }); }
    default: return json(res, { error: 'not_found' }, 404);
  }
}

const KIND = { '/jwks': 'jwks', '/.well-known/openid-configuration': 'discovery', '/.well-known/oauth-authorization-server': 'discovery', '/token': 'token', '/token/introspection': 'introspection' };
const server = http.createServer(async (req, res) => {
  const u = new URL(req.url, ISSUER);
  try {
    const kind = KIND[u.pathname]; hits[kind ?? u.pathname.split('/')[1]] = (hits[kind ?? u.pathname.split('/')[1]] ?? 0) + 1;
    const f = faults[kind];
    if (f?.mode === '503') return json(res, { error: 'temporarily_unavailable' }, 503);
    if (f?.mode === 'garbage') { res.writeHead(200, { 'content-type': 'application/json' }); return res.end('{"keys":"nope"'); }
    if (f?.mode === 'empty') return json(res, { keys: [] });
    if (f?.mode === 'hang') { await new Promise((r) => setTimeout(r, f.ms)); if (res.destroyed) return undefined; }
    if (u.pathname.startsWith('/admin/')) return await admin(req, res, u);
    const m = /^\/interaction\/([\w-]+)$/.exec(u.pathname);
    if (m) return await interaction(req, res, m[1]);
    return await callback(req, res);
  } catch (e) { if (!res.headersSent) json(res, { error: e.error ?? 'server_error', error_description: e.message }, e.statusCode ?? 500); }
  return undefined;
});
server.listen(PORT, '127.0.0.1', () => console.log(JSON.stringify({ ready: true, issuer: ISSUER, pid: process.pid })));
for (const s of ['SIGTERM', 'SIGINT']) process.on(s, () => { server.close(); server.closeAllConnections(); process.exit(0); });
