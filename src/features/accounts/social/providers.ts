import { canonicalEmail } from '../../../adapters/email-address.ts'

/** One provider, with the addresses and formats of its public documentation. */
export type Provider = Endpoints & {
  readonly scopes: readonly string[]
  /** Between scopes; a blank by the standard. */
  readonly separator?: ','
  /** Takes a code challenge (RFC 7636, S256). */
  readonly pkce: boolean
  /** How the client proves itself to the token endpoint: in the form unless it says so. */
  readonly basic?: true
  /** Further parameters of the authorization request. */
  readonly parameters?: Readonly<Record<string, string>>
  /** Where the profile is asked for when no ID token holds it. */
  readonly profile?: ProfileRequest
  readonly map: (raw: Readonly<Record<string, unknown>>) => ProviderClaims
}

/** ID tokens are used where the issuer is known: with `jwks`, or by `discover`, which tells the endpoints too. */
type Endpoints =
  | { readonly authorize: string; readonly token: string; readonly issuer?: string; readonly jwks?: string }
  | { readonly discover: string }

/** A GET with the access token as bearer, unless it says otherwise. */
export type ProfileRequest = {
  readonly url: string
  readonly headers?: Readonly<Record<string, string>>
  /** Makes it a POST. */
  readonly json?: object | null
  /** The access token and the client's id go into a form, and it is a POST. */
  readonly form?: true
  /** These members of the token endpoint's answer go into the query, and there is no bearer. */
  readonly query?: readonly string[]
  /** A second address whose answer becomes the member `emails`. */
  readonly emails?: string
}

const openid = ['openid', 'email', 'profile']

/** An OpenID Connect provider of which no more is known than its issuer. */
export function standardProvider(issuer: string): Provider {
  return { discover: issuer, scopes: openid, pkce: true, map: standardClaims }
}

/** THE table of providers, by their ids. `{domain}` and `{tenant}` stand for configured values. */
export const providers: Readonly<Record<string, Provider>> = {
  google: {
    authorize: 'https://accounts.google.com/o/oauth2/v2/auth',
    token: 'https://oauth2.googleapis.com/token',
    issuer: 'https://accounts.google.com',
    jwks: 'https://www.googleapis.com/oauth2/v3/certs',
    scopes: openid,
    pkce: true,
    map: standardClaims,
  },
  facebook: {
    authorize: 'https://www.facebook.com/v24.0/dialog/oauth',
    token: 'https://graph.facebook.com/v24.0/oauth/access_token',
    scopes: ['email', 'public_profile'],
    separator: ',',
    pkce: false,
    profile: { url: 'https://graph.facebook.com/v24.0/me?fields=id,name,first_name,last_name,email' },
    map: ({ id, name, email, first_name, last_name }) => ({
      sub: id,
      name,
      email,
      given: first_name,
      family: last_name,
    }),
  },
  apple: {
    authorize: 'https://appleid.apple.com/auth/authorize',
    token: 'https://appleid.apple.com/auth/token',
    issuer: 'https://appleid.apple.com',
    jwks: 'https://appleid.apple.com/auth/keys',
    scopes: ['name', 'email'],
    pkce: false,
    // It answers by a form whenever a name or an address is asked for.
    parameters: { response_mode: 'form_post' },
    map: standardClaims,
  },
  github: {
    authorize: 'https://github.com/login/oauth/authorize',
    token: 'https://github.com/login/oauth/access_token',
    scopes: ['read:user', 'user:email'],
    pkce: true,
    profile: { url: 'https://api.github.com/user', emails: 'https://api.github.com/user/emails' },
    map: ({ id, name, login, emails }) => {
      const primary = (Array.isArray(emails) ? emails : []).find((one) => at(one, 'primary') === true)
      return { sub: id, name: name ?? login, email: at(primary, 'email'), verified: at(primary, 'verified') }
    },
  },
  atlassian: {
    authorize: 'https://auth.atlassian.com/authorize',
    token: 'https://auth.atlassian.com/oauth/token',
    scopes: ['read:me'],
    pkce: true,
    parameters: { audience: 'api.atlassian.com', prompt: 'consent' },
    profile: { url: 'https://api.atlassian.com/me' },
    map: ({ account_id, name, email, email_verified }) => ({ sub: account_id, name, email, verified: email_verified }),
  },
  cognito: {
    authorize: 'https://{domain}/oauth2/authorize',
    token: 'https://{domain}/oauth2/token',
    scopes: openid,
    pkce: true,
    profile: { url: 'https://{domain}/oauth2/userInfo' },
    map: standardClaims,
  },
  discord: {
    authorize: 'https://discord.com/oauth2/authorize',
    token: 'https://discord.com/api/oauth2/token',
    scopes: ['identify', 'email'],
    pkce: true,
    profile: { url: 'https://discord.com/api/users/@me' },
    map: ({ id, global_name, username, email, verified }) => ({
      sub: id,
      name: global_name ?? username,
      email,
      verified,
    }),
  },
  dropbox: {
    authorize: 'https://www.dropbox.com/oauth2/authorize',
    token: 'https://api.dropboxapi.com/oauth2/token',
    scopes: ['account_info.read'],
    pkce: true,
    profile: { url: 'https://api.dropboxapi.com/2/users/get_current_account', json: null },
    map: ({ account_id, name, email, email_verified }) => ({
      sub: account_id,
      email,
      verified: email_verified,
      name: at(name, 'display_name'),
      given: at(name, 'given_name'),
      family: at(name, 'surname'),
    }),
  },
  figma: {
    authorize: 'https://www.figma.com/oauth',
    token: 'https://api.figma.com/v1/oauth/token',
    scopes: ['current_user:read'],
    pkce: true,
    basic: true,
    profile: { url: 'https://api.figma.com/v1/me' },
    map: ({ id, handle, email }) => ({ sub: id, name: handle, email }),
  },
  gitlab: {
    authorize: 'https://gitlab.com/oauth/authorize',
    token: 'https://gitlab.com/oauth/token',
    issuer: 'https://gitlab.com',
    jwks: 'https://gitlab.com/oauth/discovery/keys',
    scopes: openid,
    pkce: true,
    map: standardClaims,
  },
  huggingface: {
    authorize: 'https://huggingface.co/oauth/authorize',
    token: 'https://huggingface.co/oauth/token',
    scopes: openid,
    pkce: true,
    profile: { url: 'https://huggingface.co/oauth/userinfo' },
    map: standardClaims,
  },
  kakao: {
    authorize: 'https://kauth.kakao.com/oauth/authorize',
    token: 'https://kauth.kakao.com/oauth/token',
    scopes: ['account_email', 'profile_nickname'],
    pkce: false,
    profile: { url: 'https://kapi.kakao.com/v2/user/me' },
    map: ({ id, kakao_account: account }) => ({
      sub: id,
      name: at(account, 'profile', 'nickname'),
      email: at(account, 'email'),
      verified: at(account, 'is_email_valid') === true && at(account, 'is_email_verified') === true,
    }),
  },
  kick: {
    authorize: 'https://id.kick.com/oauth/authorize',
    token: 'https://id.kick.com/oauth/token',
    scopes: ['user:read'],
    pkce: true,
    profile: { url: 'https://api.kick.com/public/v1/users' },
    map: ({ data }) => ({ sub: at(data, 0, 'user_id'), name: at(data, 0, 'name'), email: at(data, 0, 'email') }),
  },
  line: {
    authorize: 'https://access.line.me/oauth2/v2.1/authorize',
    token: 'https://api.line.me/oauth2/v2.1/token',
    // The channel's secret signs its ID tokens, which alone hold the address.
    issuer: 'https://access.line.me',
    scopes: ['openid', 'profile', 'email'],
    pkce: true,
    map: standardClaims,
  },
  linear: {
    authorize: 'https://linear.app/oauth/authorize',
    token: 'https://api.linear.app/oauth/token',
    scopes: ['read'],
    pkce: true,
    profile: { url: 'https://api.linear.app/graphql', json: { query: '{ viewer { id name email } }' } },
    map: ({ data }) => ({
      sub: at(data, 'viewer', 'id'),
      name: at(data, 'viewer', 'name'),
      email: at(data, 'viewer', 'email'),
    }),
  },
  linkedin: {
    // Its ID tokens repeat no nonce, so they are not used.
    authorize: 'https://www.linkedin.com/oauth/v2/authorization',
    token: 'https://www.linkedin.com/oauth/v2/accessToken',
    scopes: openid,
    pkce: false,
    profile: { url: 'https://api.linkedin.com/v2/userinfo' },
    map: standardClaims,
  },
  microsoft: {
    discover: 'https://login.microsoftonline.com/{tenant}/v2.0',
    scopes: openid,
    pkce: true,
    // Administrators of a tenant write any address into its accounts: only where the owner of the domain is verified, it
    // is one.
    map: (raw) => ({ ...standardClaims(raw), verified: raw.xms_edov === true || raw.xms_edov === '1' }),
  },
  naver: {
    authorize: 'https://nid.naver.com/oauth2.0/authorize',
    token: 'https://nid.naver.com/oauth2.0/token',
    scopes: ['profile', 'email'],
    pkce: false,
    profile: { url: 'https://openapi.naver.com/v1/nid/me' },
    map: ({ response }) => ({
      sub: at(response, 'id'),
      name: at(response, 'name') ?? at(response, 'nickname'),
      email: at(response, 'email'),
    }),
  },
  notion: {
    authorize: 'https://api.notion.com/v1/oauth/authorize',
    token: 'https://api.notion.com/v1/oauth/token',
    scopes: [],
    pkce: false,
    basic: true,
    parameters: { owner: 'user' },
    profile: { url: 'https://api.notion.com/v1/users/me', headers: { 'notion-version': '2022-06-28' } },
    map: ({ bot }) => ({
      sub: at(bot, 'owner', 'user', 'id'),
      name: at(bot, 'owner', 'user', 'name'),
      email: at(bot, 'owner', 'user', 'person', 'email'),
    }),
  },
  paybin: standardProvider('https://idp.paybin.io'),
  paypal: {
    authorize: 'https://www.paypal.com/signin/authorize',
    token: 'https://api-m.paypal.com/v1/oauth2/token',
    scopes: openid,
    pkce: true,
    basic: true,
    profile: { url: 'https://api-m.paypal.com/v1/identity/oauth2/userinfo?schema=paypalv1.1' },
    map: ({ user_id, name, given_name, family_name, emails }) => {
      const primary = (Array.isArray(emails) ? emails : []).find((one) => at(one, 'primary') === true)
      const [email, verified] = [at(primary, 'value'), at(primary, 'confirmed')]
      return { sub: user_id, name, given: given_name, family: family_name, email, verified }
    },
  },
  polar: {
    authorize: 'https://polar.sh/oauth2/authorize',
    token: 'https://api.polar.sh/v1/oauth2/token',
    scopes: openid,
    pkce: true,
    profile: { url: 'https://api.polar.sh/v1/oauth2/userinfo' },
    map: standardClaims,
  },
  railway: {
    authorize: 'https://backboard.railway.com/oauth/auth',
    token: 'https://backboard.railway.com/oauth/token',
    scopes: openid,
    pkce: true,
    basic: true,
    profile: { url: 'https://backboard.railway.com/oauth/me' },
    map: standardClaims,
  },
  reddit: {
    authorize: 'https://www.reddit.com/api/v1/authorize',
    token: 'https://www.reddit.com/api/v1/access_token',
    scopes: ['identity'],
    pkce: false,
    basic: true,
    profile: { url: 'https://oauth.reddit.com/api/v1/me' },
    map: ({ id, name }) => ({ sub: id, name }),
  },
  roblox: {
    authorize: 'https://apis.roblox.com/oauth/v1/authorize',
    token: 'https://apis.roblox.com/oauth/v1/token',
    scopes: ['openid', 'profile'],
    pkce: true,
    profile: { url: 'https://apis.roblox.com/oauth/v1/userinfo' },
    map: (raw) => ({ ...standardClaims(raw), name: raw.nickname ?? raw.preferred_username }),
  },
  salesforce: {
    authorize: 'https://login.salesforce.com/services/oauth2/authorize',
    token: 'https://login.salesforce.com/services/oauth2/token',
    scopes: openid,
    pkce: true,
    profile: { url: 'https://login.salesforce.com/services/oauth2/userinfo' },
    map: (raw) => ({ ...standardClaims(raw), sub: raw.user_id }),
  },
  slack: {
    authorize: 'https://slack.com/openid/connect/authorize',
    token: 'https://slack.com/api/openid.connect.token',
    issuer: 'https://slack.com',
    jwks: 'https://slack.com/openid/connect/keys',
    scopes: openid,
    pkce: false,
    map: standardClaims,
  },
  spotify: {
    authorize: 'https://accounts.spotify.com/authorize',
    token: 'https://accounts.spotify.com/api/token',
    scopes: ['user-read-email'],
    pkce: true,
    basic: true,
    profile: { url: 'https://api.spotify.com/v1/me' },
    map: ({ id, display_name, email }) => ({ sub: id, name: display_name, email }),
  },
  tiktok: {
    authorize: 'https://www.tiktok.com/v2/auth/authorize/',
    token: 'https://open.tiktokapis.com/v2/oauth/token/',
    scopes: ['user.info.basic'],
    separator: ',',
    pkce: false,
    profile: { url: 'https://open.tiktokapis.com/v2/user/info/?fields=open_id,display_name' },
    map: ({ data }) => ({ sub: at(data, 'user', 'open_id'), name: at(data, 'user', 'display_name') }),
  },
  twitch: {
    authorize: 'https://id.twitch.tv/oauth2/authorize',
    token: 'https://id.twitch.tv/oauth2/token',
    issuer: 'https://id.twitch.tv/oauth2',
    jwks: 'https://id.twitch.tv/oauth2/keys',
    scopes: ['openid', 'user:read:email'],
    pkce: false,
    parameters: {
      claims: JSON.stringify({ id_token: { email: null, email_verified: null, preferred_username: null } }),
    },
    map: standardClaims,
  },
  twitter: {
    authorize: 'https://x.com/i/oauth2/authorize',
    token: 'https://api.x.com/2/oauth2/token',
    scopes: ['users.read', 'tweet.read', 'users.email'],
    pkce: true,
    basic: true,
    profile: { url: 'https://api.x.com/2/users/me?user.fields=confirmed_email' },
    map: ({ data }) => ({
      sub: at(data, 'id'),
      name: at(data, 'name'),
      email: at(data, 'confirmed_email'),
      verified: true,
    }),
  },
  vercel: {
    authorize: 'https://vercel.com/oauth/authorize',
    token: 'https://api.vercel.com/login/oauth/token',
    scopes: openid,
    pkce: true,
    profile: { url: 'https://api.vercel.com/login/oauth/userinfo' },
    map: standardClaims,
  },
  vk: {
    authorize: 'https://id.vk.com/authorize',
    token: 'https://id.vk.com/oauth2/auth',
    scopes: ['email'],
    pkce: true,
    profile: { url: 'https://id.vk.com/oauth2/user_info', form: true },
    map: ({ user }) => ({
      sub: at(user, 'user_id'),
      email: at(user, 'email'),
      given: at(user, 'first_name'),
      family: at(user, 'last_name'),
    }),
  },
  wechat: {
    authorize: 'https://open.weixin.qq.com/connect/qrconnect',
    token: 'https://api.weixin.qq.com/sns/oauth2/access_token',
    scopes: ['snsapi_login'],
    separator: ',',
    pkce: false,
    profile: { url: 'https://api.weixin.qq.com/sns/userinfo', query: ['access_token', 'openid'] },
    map: ({ unionid, openid: id, nickname }) => ({ sub: unionid ?? id, name: nickname }),
  },
  zoom: {
    authorize: 'https://zoom.us/oauth/authorize',
    token: 'https://zoom.us/oauth/token',
    scopes: [],
    pkce: true,
    basic: true,
    profile: { url: 'https://api.zoom.us/v2/users/me' },
    map: ({ id, email, verified, first_name, last_name, display_name }) => ({
      sub: id,
      email,
      verified: verified === 1,
      name: display_name,
      given: first_name,
      family: last_name,
    }),
  },
}

/** A person as a provider knows them. */
export type Profile = {
  /** Never changes at the provider, and is never given to another user there. */
  readonly accountId: string
  /** In canonical form. */
  readonly email: string | undefined
  /** The provider says that the address is theirs. No statement counts as no. */
  readonly emailVerified: boolean
  readonly firstName: string
  readonly lastName: string | null
}

type Raw = Readonly<Record<string, unknown>>

/** A provider's answer, in the words of OpenID Connect; `profileOf` checks the values. */
type ProviderClaims = {
  readonly sub: unknown
  readonly email?: unknown
  readonly verified?: unknown
  readonly name?: unknown
  readonly given?: unknown
  readonly family?: unknown
}

/** A profile of checked values; undefined when the provider does not say whose it is. */
export function profileOf({ sub, email, verified, name, given, family }: ProviderClaims): Profile | undefined {
  const accountId = identifier(sub)
  if (accountId === undefined) return undefined
  const address = typeof email === 'string' ? canonicalEmail(email) : undefined
  const [first, ...others] = (text(name) ?? '').split(/\s+/)
  return {
    accountId,
    email: address,
    // Some write it as a text.
    emailVerified: address !== undefined && (verified === true || verified === 'true'),
    firstName: text(given) ?? text(first) ?? address?.split('@')[0] ?? 'User',
    lastName: text(family) ?? (given === undefined ? text(others.join(' ')) : undefined) ?? null,
  }
}

/** The claims of OpenID Connect. */
function standardClaims(raw: Raw): ProviderClaims {
  return {
    sub: raw.sub,
    email: raw.email,
    verified: raw.email_verified,
    name: raw.name ?? raw.preferred_username,
    given: raw.given_name,
    family: raw.family_name,
  }
}

/** A member further down; undefined where there is none. */
function at(raw: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (value !== null && typeof value === 'object' ? (value as Raw)[key] : undefined),
    raw,
  )
}

/** Taken as it is: a cut or trimmed one could be another user's. */
function identifier(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return String(value)
  return typeof value === 'string' && /^[\x20-\x7e]{1,255}$/.test(value) ? value : undefined
}

function text(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined
  const clean = value.replaceAll('\0', '').trim()
  return clean === '' ? undefined : clean.slice(0, 255)
}
