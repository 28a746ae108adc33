import type { Static } from 'typebox'
import type { Configuration } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import type { LinkOrCode } from '../../messaging/mail/mail.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { emailOf, type LinkBody } from './input.ts'

/**
 * The base address that a mailed link begins with: `link` when it is one of the trusted frontends or a path there, else
 * 400 with `refusal`. Ask before any account is looked up.
 *
 * The text must *be* a trusted address (AUTH_APP_URL, the settings' app_url and project_url), or begin with the very text
 * of its origin and go on with a plain path, but for trailing slashes: one that every reader of addresses takes as it is
 * written. So no reading of it can differ from the browser's.
 */
export function trustedLink(
  rt: Configuration & CurrentSettings,
  link: string | undefined,
  refusal = 'Invalid link',
): string {
  const address = link !== undefined && link.length <= longest ? link.replace(/\/+$/, '') : ''
  if (!trustedAddresses(rt).some((trusted) => address === trusted || isPathAt(new URL(trusted).origin, address)))
    throw new AppError(400, refusal)
  return address
}

/**
 * An address below a trusted frontend, to send a browser back to; else 400 with `refusal`. It begins with the very text
 * of a trusted origin and a slash, so whatever follows can only be a path and query there; a fragment is refused.
 */
export function trustedReturn(
  rt: Configuration & CurrentSettings,
  address: string | undefined,
  refusal: string,
): string {
  const text = address !== undefined && address.length <= longest ? address : ''
  const isPlain = /^https?:\/\/[\w.~:/?@!$&'()*+,;=%[\]-]+$/.test(text) && URL.canParse(text)
  const origins = trustedAddresses(rt).map((trusted) => new URL(trusted).origin)
  if (isPlain && origins.some((origin) => text === origin || text.startsWith(`${origin}/`))) return text
  throw new AppError(400, refusal)
}

/** The first trusted frontend; 400 where the installation names none. */
export function defaultLink(rt: Configuration & CurrentSettings, refusal = 'Invalid link'): string {
  const [first] = trustedAddresses(rt)
  if (first === undefined) throw new AppError(400, refusal)
  return first
}

/** What is mailed where: a link below a trusted frontend, or a code. */
export type LinkRequest = { readonly email: string } & LinkOrCode

/** What a request for a magic link or password reset asks for. 400 for what is malformed or not trusted. */
export function linkRequestOf(
  rt: Configuration & CurrentSettings,
  { email, mode = 'link', link }: Static<typeof LinkBody>,
): LinkRequest {
  const context: LinkOrCode = mode === 'code' ? { mode } : { mode, link: trustedLink(rt, link) }
  return { email: emailOf(email), ...context }
}

const longest = 2048

/** Segments of unreserved and sub-delimiter characters, `:` and `@`, or escapes of what could stand nowhere else. */
const plainPath = /^(?:\/(?!\.\.)(?:[\w.~!$&'()*+,;=:@-]|%(?![01]|2[5ef]|5c|7f)[\da-f]{2})+)*$/i

/** Parsing it changes nothing: no `..` and nothing that some reader takes for one, no host in other letters. */
function isPathAt(origin: string, address: string): boolean {
  if (!address.startsWith(origin)) return false
  const path = address.slice(origin.length)
  return (
    plainPath.test(path) && URL.canParse(address) && new URL(address).href === (path === '' ? `${origin}/` : address)
  )
}

function trustedAddresses(rt: Configuration & CurrentSettings): string[] {
  const { app_url, project_url } = rt.settings.current()
  return [
    ...rt.config.auth.appUrls,
    ...[app_url, project_url].filter(isWebAddress).map((url) => url.replace(/\/+$/, '')),
  ]
}

/** Settings are free text: only http(s) addresses without user name, query or fragment count. */
function isWebAddress(value: unknown): value is string {
  if (typeof value !== 'string' || !/^https?:\/\/[^\\\s?#@]+$/i.test(value)) return false
  return URL.canParse(value)
}
