import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

/** What the provider says of a user; the login name is the account's id there. */
export type OpenIdAccount = { email?: string; email_verified?: boolean; name?: string; given_name?: string }

export type OpenId = {
  readonly issuer: string
  readonly accounts: Map<string, OpenIdAccount>
  /** The parameters of every authorization request. */
  readonly asked: URLSearchParams[]
  /** Signs an ID token as the provider does, or as `more` says. */
  idToken(claims: object, header?: object, expires?: string): Promise<string>
}

/** Redirect addresses that the provider takes. */
export type OpenIdOptions = { clientId: string; clientSecret: string; redirectUris: string[] }

/** A real OpenID provider on loopback; closed after the file. */
export async function startOpenId({ clientId, clientSecret, redirectUris }: OpenIdOptions): Promise<OpenId> {
  const { default: Provider } = await import('oidc-provider')
  const { exportJWK, generateKeyPair, SignJWT } = await import('jose')
  const keys = await generateKeyPair('RS256', { extractable: true })
  const jwk = { ...(await exportJWK(keys.privateKey)), kid: 'test', alg: 'RS256', use: 'sig' }
  const accounts = new Map<string, OpenIdAccount>()
  const asked: URLSearchParams[] = []
  const server = createServer()
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: clientId,
        client_secret: clientSecret,
        redirect_uris: redirectUris,
        token_endpoint_auth_method: 'client_secret_post',
      },
    ],
    jwks: { keys: [jwk as never] },
    cookies: { keys: ['only for tests'] },
    pkce: { required: () => true },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'given_name'] },
    conformIdTokenClaims: false,
    findAccount: (_context, sub) => ({ accountId: sub, claims: async () => ({ sub, ...accounts.get(sub) }) }),
  })
  const answer = provider.callback()
  server.on('request', (request, response) => {
    const url = new URL(request.url ?? '/', issuer)
    if (url.pathname === '/auth') asked.push(url.searchParams)
    void answer(request, response)
  })
  afterAll(() => void server.close().closeAllConnections())
  const idToken = (claims: object, header: object = {}, expires = '5 minutes') =>
    new SignJWT({ ...claims })
      .setProtectedHeader({ alg: 'RS256', kid: 'test', ...header })
      .setIssuedAt()
      .setExpirationTime(expires)
      .sign(keys.privateKey)
  return { issuer, accounts, asked, idToken }
}

/**
 * Goes through login and consent at the provider like a browser with cookies and forms, as `login`; the address that it
 * is sent back to. Without a login it refuses.
 */
export async function visit(start: string, login: string | undefined): Promise<URL> {
  const cookies = new Map<string, string>()
  const home = new URL(start).origin
  let next: { url: string; form?: Record<string, string> } = { url: start }
  for (let steps = 0; steps < 20; steps += 1) {
    const response = await fetch(next.url, {
      method: next.form === undefined ? 'GET' : 'POST',
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(next.form !== undefined && { body: new URLSearchParams(next.form) }),
    })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      cookies.set(name, value)
    }
    const location = response.headers.get('location')
    if (location !== null) {
      const url = new URL(location, next.url)
      if (url.origin !== home) return url
      next = { url: url.href }
      continue
    }
    next = formOf(await response.text(), next.url, login)
  }
  throw new Error('the provider sends the browser round in circles')
}

function formOf(html: string, base: string, login: string | undefined) {
  if (login === undefined) {
    const [, abort] = /href="([^"]*\/abort)"/.exec(html) ?? []
    return { url: new URL(abort!, base).href }
  }
  const [, action] = /<form[^>]*action="([^"]+)"/.exec(html) ?? []
  const [, prompt] = /name="prompt" value="([^"]+)"/.exec(html) ?? []
  if (action === undefined || prompt === undefined) throw new Error(`no form of the provider: ${html.slice(0, 500)}`)
  return { url: new URL(action, base).href, form: { prompt, login, password: 'any' } }
}
