import type { Config } from '../../config.ts'

/**
 * The session cookie of cookie mode (auth facts §1). Browsers take the name `__Host-token` only over HTTPS, for the
 * whole host and for no other one, so it is used wherever the configuration allows; both names are read.
 */
export function sessionCookie(config: Config, token: string): string {
  return cookieText(config, token, config.auth.accessTokenExpiresIn)
}

/** What makes a browser drop the session cookie. */
export function clearedSessionCookie(config: Config): string {
  return cookieText(config, '', 0)
}

/** The token in a request's Cookie header; undefined when there is none. */
export function tokenOfCookies(header: string | undefined): string | undefined {
  if (header === undefined) return undefined
  const cookies = header.split(';').map((pair) => pair.trim())
  for (const name of [hostName, plainName]) {
    const found = cookies.find((pair) => pair.startsWith(`${name}=`))
    if (found !== undefined && found.length > name.length + 1) return found.slice(name.length + 1)
  }
  return undefined
}

const plainName = 'token'
const hostName = '__Host-token'

function cookieText({ cookie }: Config, value: string, maxAge: number): string {
  const { domain, path, secure, httpOnly, sameSite } = cookie
  const name = secure && path === '/' && domain === undefined ? hostName : plainName
  const attributes = [
    `${name}=${value}`,
    `Path=${path}`,
    `Max-Age=${maxAge}`,
    ...(domain === undefined ? [] : [`Domain=${domain}`]),
    ...(httpOnly ? ['HttpOnly'] : []),
    ...(secure ? ['Secure'] : []),
    `SameSite=${sameSite.charAt(0).toUpperCase()}${sameSite.slice(1)}`,
  ]
  return attributes.join('; ')
}
