import { describe, expect, it } from 'vitest'
import type { SocialProvider } from '../../src/config/families.ts'
import { socialProviderIds } from '../../src/config/variables/accounts.ts'
import { hasIdTokens, providerOf } from '../../src/features/accounts/social/client.ts'
import { type Provider, profileOf, providers } from '../../src/features/accounts/social/providers.ts'
import { addressed, authorizationParameters } from '../../src/features/accounts/social/social.ts'

const configured = (id: string, more: object = {}): SocialProvider => ({
  id,
  clientId: 'the client',
  clientSecret: 'the secret',
  issuer: undefined,
  extra: { tenantId: 'our-tenant', domain: 'us.auth.example.com', region: 'us-east-1' },
  ...more,
})

type Expected = {
  /** Where the browser goes, or the issuer that tells where. */
  authorize: string
  scope?: string
  pkce?: boolean
  /** The identity in an ID token, or at this address. */
  profile: string
  raw: object
  says: [accountId: string, email: string | undefined, verified: boolean, firstName: string, lastName: string | null]
}

const openid = 'openid email profile'
const standard = { sub: 's', email: 'A@Example.com', email_verified: true, given_name: 'Ada', family_name: 'King' }
const says: Expected['says'] = ['s', 'a@example.com', true, 'Ada', 'King']
const unverified: Expected['says'] = ['s', 'a@example.com', false, 'Ada', 'King']
const nameOnly: Expected['says'] = ['s', undefined, false, 'Ada', 'King']
const flat = { id: 's', name: 'Ada King', email: 'a@example.com' }

/** Every provider: what is sent, and a sample of what comes back. */
const expected: Record<string, Expected> = {
  google: {
    authorize: 'accounts.google.com/o/oauth2/v2/auth',
    scope: openid,
    pkce: true,
    profile: 'ID token',
    raw: standard,
    says,
  },
  facebook: {
    authorize: 'www.facebook.com/v24.0/dialog/oauth',
    scope: 'email,public_profile',
    profile: 'graph.facebook.com',
    raw: { ...flat, first_name: 'Ada', last_name: 'King' },
    says: unverified,
  },
  apple: {
    authorize: 'appleid.apple.com/auth/authorize',
    scope: 'name email',
    profile: 'ID token',
    raw: { ...standard, email_verified: 'true' },
    says,
  },
  github: {
    authorize: 'github.com/login/oauth/authorize',
    scope: 'read:user user:email',
    pkce: true,
    profile: 'api.github.com',
    raw: {
      id: 7,
      login: 'ada',
      name: 'Ada King',
      email: 'shown@example.com',
      emails: [
        { email: 'old@example.com', verified: true, primary: false },
        { email: 'a@example.com', verified: true, primary: true },
      ],
    },
    says: ['7', 'a@example.com', true, 'Ada', 'King'],
  },
  atlassian: {
    authorize: 'auth.atlassian.com/authorize',
    scope: 'read:me',
    pkce: true,
    profile: 'api.atlassian.com',
    raw: { account_id: 's', name: 'Ada King', email: 'a@example.com', email_verified: true },
    says,
  },
  cognito: {
    authorize: 'us.auth.example.com/oauth2/authorize',
    scope: openid,
    pkce: true,
    profile: 'us.auth.example.com',
    raw: { ...standard, email_verified: 'true' },
    says,
  },
  discord: {
    authorize: 'discord.com/oauth2/authorize',
    scope: 'identify email',
    pkce: true,
    profile: 'discord.com',
    raw: { id: 's', username: 'ada', global_name: 'Ada King', email: 'a@example.com', verified: true },
    says,
  },
  dropbox: {
    authorize: 'www.dropbox.com/oauth2/authorize',
    scope: 'account_info.read',
    pkce: true,
    profile: 'api.dropboxapi.com',
    raw: {
      account_id: 's',
      name: { given_name: 'Ada', surname: 'King' },
      email: 'a@example.com',
      email_verified: true,
    },
    says,
  },
  figma: {
    authorize: 'www.figma.com/oauth',
    scope: 'current_user:read',
    pkce: true,
    profile: 'api.figma.com',
    raw: { id: 's', handle: 'Ada King', email: 'a@example.com' },
    says: unverified,
  },
  gitlab: {
    authorize: 'gitlab.com/oauth/authorize',
    scope: openid,
    pkce: true,
    profile: 'ID token',
    raw: standard,
    says,
  },
  huggingface: {
    authorize: 'huggingface.co/oauth/authorize',
    scope: openid,
    pkce: true,
    profile: 'huggingface.co',
    raw: { ...standard, given_name: undefined, family_name: undefined, name: 'Ada King' },
    says,
  },
  kakao: {
    authorize: 'kauth.kakao.com/oauth/authorize',
    scope: 'account_email profile_nickname',
    profile: 'kapi.kakao.com',
    raw: {
      id: 7,
      kakao_account: {
        email: 'a@example.com',
        is_email_valid: true,
        is_email_verified: true,
        profile: { nickname: 'Ada' },
      },
    },
    says: ['7', 'a@example.com', true, 'Ada', null],
  },
  kick: {
    authorize: 'id.kick.com/oauth/authorize',
    scope: 'user:read',
    pkce: true,
    profile: 'api.kick.com',
    raw: { data: [{ user_id: 7, name: 'Ada King', email: 'a@example.com' }] },
    says: ['7', 'a@example.com', false, 'Ada', 'King'],
  },
  line: {
    authorize: 'access.line.me/oauth2/v2.1/authorize',
    scope: 'openid profile email',
    pkce: true,
    profile: 'ID token',
    raw: { sub: 's', name: 'Ada King', email: 'a@example.com' },
    says: unverified,
  },
  linear: {
    authorize: 'linear.app/oauth/authorize',
    scope: 'read',
    pkce: true,
    profile: 'api.linear.app',
    raw: { data: { viewer: flat } },
    says: unverified,
  },
  linkedin: {
    authorize: 'www.linkedin.com/oauth/v2/authorization',
    scope: openid,
    profile: 'api.linkedin.com',
    raw: standard,
    says,
  },
  microsoft: {
    authorize: 'https://login.microsoftonline.com/our-tenant/v2.0',
    scope: openid,
    pkce: true,
    profile: 'ID token',
    raw: { ...standard, email_verified: true },
    says: unverified,
  },
  naver: {
    authorize: 'nid.naver.com/oauth2.0/authorize',
    scope: 'profile email',
    profile: 'openapi.naver.com',
    raw: { resultcode: '00', response: flat },
    says: unverified,
  },
  notion: {
    authorize: 'api.notion.com/v1/oauth/authorize',
    profile: 'api.notion.com',
    raw: { bot: { owner: { user: { id: 's', name: 'Ada King', person: { email: 'a@example.com' } } } } },
    says: unverified,
  },
  paybin: { authorize: 'https://idp.paybin.io', scope: openid, pkce: true, profile: 'ID token', raw: standard, says },
  paypal: {
    authorize: 'www.paypal.com/signin/authorize',
    scope: openid,
    pkce: true,
    profile: 'api-m.paypal.com',
    raw: { user_id: 's', name: 'Ada King', emails: [{ value: 'a@example.com', primary: true, confirmed: true }] },
    says,
  },
  polar: {
    authorize: 'polar.sh/oauth2/authorize',
    scope: openid,
    pkce: true,
    profile: 'api.polar.sh',
    raw: standard,
    says,
  },
  railway: {
    authorize: 'backboard.railway.com/oauth/auth',
    scope: openid,
    pkce: true,
    profile: 'backboard.railway.com',
    raw: standard,
    says,
  },
  reddit: {
    authorize: 'www.reddit.com/api/v1/authorize',
    scope: 'identity',
    profile: 'oauth.reddit.com',
    raw: { id: 's', name: 'Ada King', has_verified_email: true },
    says: nameOnly,
  },
  roblox: {
    authorize: 'apis.roblox.com/oauth/v1/authorize',
    scope: 'openid profile',
    pkce: true,
    profile: 'apis.roblox.com',
    raw: { sub: 's', nickname: 'Ada King', preferred_username: 'ada' },
    says: nameOnly,
  },
  salesforce: {
    authorize: 'login.salesforce.com/services/oauth2/authorize',
    scope: openid,
    pkce: true,
    profile: 'login.salesforce.com',
    raw: { ...standard, sub: 'https://login.salesforce.com/id/1/s', user_id: 's' },
    says,
  },
  slack: { authorize: 'slack.com/openid/connect/authorize', scope: openid, profile: 'ID token', raw: standard, says },
  spotify: {
    authorize: 'accounts.spotify.com/authorize',
    scope: 'user-read-email',
    pkce: true,
    profile: 'api.spotify.com',
    raw: { id: 's', display_name: 'Ada King', email: 'a@example.com' },
    says: unverified,
  },
  tiktok: {
    authorize: 'www.tiktok.com/v2/auth/authorize/',
    scope: 'user.info.basic',
    profile: 'open.tiktokapis.com',
    raw: { data: { user: { open_id: 's', display_name: 'Ada King' } } },
    says: nameOnly,
  },
  twitch: {
    authorize: 'id.twitch.tv/oauth2/authorize',
    scope: 'openid user:read:email',
    profile: 'ID token',
    raw: { sub: 's', preferred_username: 'Ada King', email: 'a@example.com', email_verified: true },
    says,
  },
  twitter: {
    authorize: 'x.com/i/oauth2/authorize',
    scope: 'users.read tweet.read users.email',
    pkce: true,
    profile: 'api.x.com',
    raw: { data: { id: 's', name: 'Ada King', confirmed_email: 'a@example.com' } },
    says,
  },
  vercel: {
    authorize: 'vercel.com/oauth/authorize',
    scope: openid,
    pkce: true,
    profile: 'api.vercel.com',
    raw: standard,
    says,
  },
  vk: {
    authorize: 'id.vk.com/authorize',
    scope: 'email',
    pkce: true,
    profile: 'id.vk.com',
    raw: { user: { user_id: '7', first_name: 'Ada', last_name: 'King', email: 'a@example.com' } },
    says: ['7', 'a@example.com', false, 'Ada', 'King'],
  },
  wechat: {
    authorize: 'open.weixin.qq.com/connect/qrconnect',
    scope: 'snsapi_login',
    profile: 'api.weixin.qq.com',
    raw: { openid: 'o', unionid: 's', nickname: 'Ada King' },
    says: nameOnly,
  },
  zoom: {
    authorize: 'zoom.us/oauth/authorize',
    pkce: true,
    profile: 'api.zoom.us',
    raw: { id: 's', first_name: 'Ada', last_name: 'King', email: 'a@example.com', verified: 1 },
    says,
  },
}

it('the table holds the 35 providers of the configuration', () => {
  const ids = socialProviderIds.map((id) => id.toLowerCase()).sort()
  expect(Object.keys(providers).sort()).toEqual(ids)
  expect(Object.keys(expected).sort()).toEqual(ids)
  expect(ids).toHaveLength(35)
})

describe.each(Object.entries(expected))('%s', (id, { authorize, scope, pkce = false, profile, raw, says }) => {
  const provider = providerOf(configured(id))

  it('is asked with its own addresses, over TLS', () => {
    expect(authorizeOf(provider)).toBe(authorize.startsWith('https:') ? authorize : `https://${authorize}`)
    expect(provider.profile === undefined ? 'ID token' : new URL(provider.profile.url).host).toBe(profile)
    for (const address of JSON.stringify(provider).match(/"[a-z]+:\/\/[^"]*"/g) ?? [])
      expect(address).toMatch(/^"https:[^{}]+"$/)
  })

  it('gets state and scopes, a challenge where it takes one, and a nonce where it signs ID tokens', async () => {
    const wanted = {
      redirectUri: 'https://api.example.com/cb',
      scopes: provider.scopes,
      state: 's',
      verifier: 'v'.repeat(43),
      nonce: 'n',
    }
    const parameters = await authorizationParameters(provider, wanted)
    expect(parameters).toMatchObject({ redirect_uri: wanted.redirectUri, state: 's' })
    expect(parameters.scope).toBe(scope)
    expect([parameters.code_challenge_method, parameters.code_challenge?.length]).toEqual(
      pkce ? ['S256', 43] : [undefined, undefined],
    )
    expect(parameters.nonce).toBe(hasIdTokens(provider) ? 'n' : undefined)
    expect(JSON.stringify(parameters)).not.toContain(wanted.verifier)
  })

  it('says which user it is', () => {
    const [accountId, email, emailVerified, firstName, lastName] = says
    expect(profileOf(provider.map(raw as never))).toEqual({ accountId, email, emailVerified, firstName, lastName })
  })

  it('says nothing in an answer of another form', () => {
    for (const other of [
      {},
      { error: 'x' },
      { data: null },
      { data: 'x' },
      { response: [] },
      { user: 7 },
      { sub: {}, id: [] },
    ])
      expect(profileOf(provider.map(other as never))).toBeUndefined()
  })
})

function authorizeOf(provider: Provider): string {
  return 'discover' in provider ? provider.discover : provider.authorize
}

describe('exceptions', () => {
  const url = () => new URL('https://example.com/a?client_id=the+client&state=s')

  it('tiktok and wechat call the client id by another name', () => {
    expect(addressed('tiktok', url(), 'the client').href).toBe('https://example.com/a?state=s&client_key=the+client')
    expect(addressed('wechat', url(), 'the client').href).toBe(
      'https://example.com/a?state=s&appid=the+client#wechat_redirect',
    )
    expect(addressed('google', url(), 'the client').href).toBe(url().href)
  })

  it('microsoft says that an address is verified by another claim', () => {
    const map = (xms_edov: unknown) => profileOf(providers.microsoft!.map({ ...standard, xms_edov }))?.emailVerified
    expect([true, '1', false, 'false', undefined].map(map)).toEqual([true, true, false, false, false])
  })

  it('another issuer makes any provider one of OpenID Connect', () => {
    const provider = providerOf(configured('wechat', { issuer: 'https://id.example.com' }))
    expect(provider).toMatchObject({ discover: 'https://id.example.com', scopes: ['openid', 'email', 'profile'] })
  })

  it('cognito and microsoft are asked at what is configured', () => {
    expect(providerOf(configured('microsoft', { extra: {} }))).toMatchObject({
      discover: 'https://login.microsoftonline.com/common/v2.0',
    })
    expect(providerOf(configured('cognito'))).toMatchObject({ token: 'https://us.auth.example.com/oauth2/token' })
  })
})

describe('a profile', () => {
  it.each([
    [{ sub: 's' }, 'User', null],
    [{ sub: 's', email: 'ada@example.com' }, 'ada', null],
    [{ sub: 's', name: '  Ada   Augusta King ' }, 'Ada', 'Augusta King'],
    [{ sub: 's', name: 'Ada King', given: 'Ada' }, 'Ada', null],
    [{ sub: 's', name: 'A\0da' }, 'Ada', null],
    [{ sub: 's', name: 7 }, 'User', null],
  ])('of %j has a name', (said, firstName, lastName) => {
    expect(profileOf(said)).toMatchObject({ firstName, lastName })
  })

  it.each([undefined, null, '', {}, [], true, 1.5, Number.NaN, 'a\0', 'x'.repeat(256)])('of %j is no user', (sub) => {
    expect(profileOf({ sub })).toBeUndefined()
  })

  it.each(['nobody', '"a"@example.com', 'a@example.com, b@example.com', '', 7])('has no address by %j', (email) => {
    expect(profileOf({ sub: 's', email, verified: true })).toMatchObject({ email: undefined, emailVerified: false })
  })

  it.each([false, 'false', 1, 'yes', undefined, null, {}])('is not verified by %j', (verified) => {
    expect(profileOf({ sub: 's', email: 'a@example.com', verified })?.emailVerified).toBe(false)
  })
})
