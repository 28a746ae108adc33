import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { decodeProtectedHeader, exportPKCS8, generateKeyPair, jwtVerify } from 'jose'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { exchangeCode, OAuthRefusal, OAuthUnavailable } from '../../src/adapters/oauth.ts'
import type { SocialProvider } from '../../src/config/families.ts'
import { openClient, providerOf, readProfile } from '../../src/features/accounts/social/client.ts'
import type { Provider } from '../../src/features/accounts/social/providers.ts'
import type { Runtime } from '../../src/process/runtime.ts'
import { testConfig } from '../support/prepare.ts'

type Seen = {
  method: string
  path: string
  query: object
  form: object
  headers: Record<string, unknown>
  body: string
}
type Reply = { status?: number; body: unknown }

/** Answers like providers do, at the paths of their real addresses. */
let base: string
let seen: Seen[] = []
let replies: Record<string, Reply> = {}
const server = createServer(async (request, response) => {
  const url = new URL(request.url ?? '/', base)
  const body = await bodyOf(request)
  const form = Object.fromEntries(new URLSearchParams(body))
  const { method = '', headers } = request
  seen.push({ method, path: url.pathname, query: Object.fromEntries(url.searchParams), form, headers, body })
  const reply = replies[url.pathname] ?? { status: 404, body: {} }
  const text = typeof reply.body === 'string' ? reply.body : JSON.stringify(reply.body)
  response.writeHead(reply.status ?? 200, { 'content-type': 'application/json' }).end(text)
})

beforeAll(async () => {
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => server.close().closeAllConnections())

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = ''
  for await (const chunk of request) body += chunk
  return body
}

const runtime = (allowed = 'true') =>
  ({
    config: testConfig('postgres://127.0.0.1/none', { SSRF_ALLOW_PRIVATE_URL_FETCH: allowed }),
    log: pino({ level: 'silent' }),
  }) as Runtime

/** The provider's own row with its servers at ours. */
function moved(configured: SocialProvider): Provider {
  return JSON.parse(JSON.stringify(providerOf(configured)), (_key, value) =>
    typeof value === 'string' ? value.replace(/^https:\/\/[^/]+/, base) : value,
  )
}

const callback = (parameters = 'code=c&state=s') => new URL(`https://api.example.com/auth/callback/x?${parameters}`)

async function arrive(
  id: string,
  answers: Record<string, Reply>,
  more: Partial<SocialProvider> = {},
  allowed = 'true',
) {
  seen = []
  replies = answers
  const configured = { id, clientId: 'client', clientSecret: 'secret', issuer: undefined, extra: {}, ...more }
  const client = await openClient(runtime(allowed), configured, {
    ...moved(configured),
    map: providerOf(configured).map,
  })
  const verifier = client.provider.pkce ? 'v'.repeat(43) : undefined
  const tokens = await exchangeCode(client.oauth, callback(), { state: 's', verifier, nonce: undefined })
  return { tokens, profile: await readProfile(runtime(allowed), client, tokens) }
}

const granted = { access_token: 'access', token_type: 'Bearer', expires_in: 3600 }

describe('asking for tokens and profile', () => {
  it('sends code, redirect address, verifier and secret in the form, and asks as the bearer', async () => {
    const { profile } = await arrive(
      'github',
      {
        '/login/oauth/access_token': { body: { access_token: 'access', token_type: 'bearer', scope: 'read:user' } },
        '/user': { body: { id: 7, login: 'ada' } },
        '/user/emails': { body: [{ email: 'ada@example.com', primary: true, verified: true }] },
      },
      {},
    )
    expect(seen[0]).toMatchObject({
      method: 'POST',
      headers: { accept: 'application/json' },
      form: {
        grant_type: 'authorization_code',
        code: 'c',
        redirect_uri: 'https://api.example.com/auth/callback/x',
        client_id: 'client',
        client_secret: 'secret',
        code_verifier: 'v'.repeat(43),
      },
    })
    expect(seen.slice(1).map(({ path, headers }) => [path, headers.authorization])).toEqual([
      ['/user', 'Bearer access'],
      ['/user/emails', 'Bearer access'],
    ])
    expect(profile).toMatchObject({ accountId: '7', email: 'ada@example.com', emailVerified: true })
  })

  it('sends the secret in the header where the provider wants it there', async () => {
    await arrive('twitter', { '/2/oauth2/token': { body: granted }, '/2/users/me': { body: { data: { id: '7' } } } })
    expect(seen[0]!.headers.authorization).toBe(`Basic ${Buffer.from('client:secret').toString('base64')}`)
    expect(seen[0]!.form).not.toHaveProperty('client_secret')
  })

  it('calls the client of TikTok by its key', async () => {
    await arrive('tiktok', {
      '/v2/oauth/token/': { body: { ...granted, open_id: 'o' } },
      '/v2/user/info/': { body: { data: { user: { open_id: 'o' } } } },
    })
    expect(seen[0]!.form).toMatchObject({ client_key: 'client', client_secret: 'secret' })
    expect(seen[0]!.form).not.toHaveProperty('client_id')
    expect(seen[1]!.query).toEqual({ fields: 'open_id,display_name' })
  })

  it('asks WeChat by GET, which answers without a type and names the account beside the token', async () => {
    const { profile } = await arrive('wechat', {
      '/sns/oauth2/access_token': { body: { access_token: 'access', expires_in: 7200, openid: 'o' } },
      '/sns/userinfo': { body: { openid: 'o', unionid: 'u', nickname: 'Ada' } },
    })
    expect(seen[0]).toMatchObject({ method: 'GET', body: '', query: { appid: 'client', secret: 'secret', code: 'c' } })
    expect(seen[1]).toMatchObject({ query: { access_token: 'access', openid: 'o' } })
    expect(seen[1]!.headers.authorization).toBeUndefined()
    expect(profile.accountId).toBe('u')
  })

  it('posts where the profile is asked for by a form, by JSON or by nothing', async () => {
    await arrive('vk', { '/oauth2/auth': { body: granted }, '/oauth2/user_info': { body: { user: { user_id: 7 } } } })
    expect(seen[1]).toMatchObject({ method: 'POST', form: { access_token: 'access', client_id: 'client' } })
    await arrive('linear', {
      '/oauth/token': { body: granted },
      '/graphql': { body: { data: { viewer: { id: 'l' } } } },
    })
    expect(JSON.parse(seen[1]!.body)).toEqual({ query: '{ viewer { id name email } }' })
    const account = '/2/users/get_current_account'
    await arrive('dropbox', { '/oauth2/token': { body: granted }, [account]: { body: { account_id: 'd' } } })
    expect(seen[1]).toMatchObject({ method: 'POST', body: 'null', headers: { authorization: 'Bearer access' } })
  })

  it('takes scopes as a list and leaves ID tokens alone where their keys are unknown', async () => {
    const body = { ...granted, scope: ['a', 'b'], id_token: 'not.one.atall' }
    const { tokens } = await arrive('polar', {
      '/v1/oauth2/token': { body },
      '/v1/oauth2/userinfo': { body: { sub: 'p' } },
    })
    expect(tokens).toMatchObject({ scope: 'a b', idToken: undefined, claims: undefined, expiresIn: 3600 })
  })

  it("signs Apple's client secret", async () => {
    const keys = await generateKeyPair('ES256', { extractable: true })
    const extra = { teamId: 'team', keyId: 'key', privateKey: await exportPKCS8(keys.privateKey) }
    const arriving = arrive(
      'apple',
      { '/auth/token': { body: { error: 'invalid_grant' } } },
      { clientSecret: undefined, extra },
    )
    await expect(arriving).rejects.toThrow('invalid_grant')
    const { client_secret: secret } = seen[0]!.form as { client_secret: string }
    expect(decodeProtectedHeader(secret)).toEqual({ alg: 'ES256', kid: 'key' })
    const { payload } = await jwtVerify(secret, keys.publicKey)
    expect(payload).toMatchObject({ iss: 'team', sub: 'client', aud: 'https://appleid.apple.com' })
    expect(payload.exp! - payload.iat!).toBe(300)
  })
})

describe('refusals', () => {
  const token = '/login/oauth/access_token'
  const user = { '/user': { body: { id: 7 } }, '/user/emails': { body: [] } }

  it.each<[string, Record<string, Reply>, string]>([
    [
      'an error with 200',
      { [token]: { body: { error: 'bad_verification_code', error_description: 'The code is wrong' } } },
      'The code is wrong',
    ],
    ['an error with 400', { [token]: { status: 400, body: { error: 'invalid_grant' } } }, 'invalid_grant'],
    ['an error of another form', { [token]: { body: { errcode: 40029, errmsg: 'invalid code' } } }, 'invalid code'],
    ['no JSON', { [token]: { body: '<html>' } }, ''],
    ['no token', { [token]: { body: {} } }, ''],
    ['a token that is none', { [token]: { body: { access_token: {} } } }, ''],
    ['no profile', { [token]: { body: granted }, '/user': { status: 401, body: {} } }, 'the provider answered 401'],
    ['a profile that is no JSON', { [token]: { body: granted }, '/user': { body: 'x' } }, 'did not answer with JSON'],
    ['a profile of nobody', { [token]: { body: granted }, ...user, '/user': { body: [] } }, 'whose account it is'],
  ])('%s', async (_kind, answers, words) => {
    const arriving = arrive('github', answers)
    await expect(arriving).rejects.toThrow(OAuthRefusal)
    await expect(arriving).rejects.toThrow(words)
  })

  it('nothing is asked of a private address', async () => {
    await expect(arrive('github', { [token]: { body: granted }, ...user }, {}, 'false')).rejects.toThrow()
    expect(seen).toEqual([])
  })

  it.each([
    ['tokens', { [token]: { status: 500, body: '<h1>Oops</h1>' }, ...user }],
    ['tokens, in the form of a refusal', { [token]: { status: 503, body: { error: 'server_error' } }, ...user }],
    ['the profile', { [token]: { body: granted }, '/user': { status: 502, body: {} } }],
  ])('a provider that fails when asked for %s is out of reach', async (_what, answers) => {
    await expect(arrive('github', answers)).rejects.toThrow(OAuthUnavailable)
  })

  it('a provider that answers too much is out of reach', async () => {
    const answers = { [token]: { body: granted }, '/user': { body: `"${'x'.repeat(1_000_001)}"` } }
    await expect(arrive('github', answers)).rejects.toThrow(OAuthUnavailable)
  })
})
