import type { Static } from 'typebox'
import { canonicalEmail } from '../../../adapters/email-address.ts'
import { isPasswordHash } from '../../../adapters/passwords.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import { type Declaration, type DeclaredOptions, route, type Tag } from '../../../http/route.ts'
import { Anything, Count, Filled, Id, NullableId, NullableText, OneOf, RowOf, Text } from '../../../http/shapes.ts'
import { withoutLastSlashes } from '../../../language/text.ts'
import type { LinkOrCode } from '../../messaging/mail/mail.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { SessionType } from './session-store.ts'

/** The bodies of requests under `/auth`. Members that are not declared have no effect. */

const sessionTypes = ['web', 'mobile', 'default'] as const satisfies readonly SessionType[]

/** How a token is delivered: in the body, or as a cookie that scripts can't read. */
export type AuthMode = 'jwt' | 'cookie'

const AuthModeMember = Type.Optional(
  OneOf(['jwt', 'cookie'], {
    default: 'jwt',
    description: 'How the token is delivered: in the body, or as a cookie that scripts cannot read.',
    refusal: "Invalid authMode. Must be 'jwt' or 'cookie'",
  }),
)
const SessionTypeMember = Type.Optional(
  OneOf(sessionTypes, {
    default: 'default',
    description: 'The kind of session; limits are per kind.',
    refusal: { status: 403, message: "Invalid session type. Must be 'mobile' or 'web'" },
  }),
)
const TenantMember = Type.Optional(
  Filled('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', {
    lenient: true,
    description: 'The tenant to sign in at; the first one without.',
  }),
)

/** A password, token or code as it is given, blanks included. */
const Secret = (example: string, refusal: string) => Type.String({ minLength: 1, examples: [example], refusal })
/** Its length is checked by characters of any script, which keywords of a shape count otherwise. */
const NewPassword = (example: string, refusal: string) =>
  Type.String({ minLength: 1, examples: [example], refusal, description: newPasswordLength })
const newPasswordLength = '8 to 128 characters.'
const OptionalSecret = (example: string) =>
  Type.Optional(Type.String({ minLength: 1, examples: [example], lenient: true }))
const OptionalText = (example: string, description?: string) =>
  Type.Optional(Filled(example, { lenient: true, ...(description !== undefined && { description }) }))

const password = 'correct horse battery'
const email = 'ada@example.com'
const link = 'https://app.example.com/welcome'
const linkToken = '5f1d7a84db00d2fce00b31a7fc73224f5f1d7a84db00d2fce00b31a7fc73224f'

/** The base address of a mailed link. */
export const Link = (unless = 'The first one unless given.', refusal = 'Invalid link') =>
  Type.Optional(
    Text(link, { refusal, description: `Where the mailed link leads: an address of a trusted frontend. ${unless}` }),
  )

const neededLink = 'Without one the request is refused.'

/** Wrong however it is wrong: a proof that does not fit is a try like any other. */
const proof = (type: string, example: unknown, description?: string) =>
  Type.Optional(
    Type.Unsafe<unknown>({ type, examples: [example], unchecked: true, ...(description && { description }) }),
  )

/** Proofs that the user is present: one of them. */
export const Proof = {
  currentPassword: proof('string', password),
  twoFactorCode: proof('string', '123456'),
  passkey: proof('object', { challengeId: linkToken, response: { id: 'kQ7x' } }, 'The answer to a challenge.'),
}
export const ProofBody = Type.Object(Proof, {
  description: 'With the session cookie one proof is needed that the user is there.',
  examples: [{ currentPassword: password }],
})
export type ProofInput = Static<typeof ProofBody>

const InviteMember = Type.Optional(
  Type.String({
    minLength: 1,
    examples: [linkToken],
    lenient: true,
    description: 'Of an invitation to the address of the account: signing in accepts it and leads to its tenant.',
  }),
)

/** How the caller wants to be signed in. */
export const SignIn = {
  authMode: AuthModeMember,
  authType: SessionTypeMember,
  tenant_Id: TenantMember,
  inviteToken: InviteMember,
}

export const AuthModeBody = Type.Object({ authMode: AuthModeMember })

const bothNeeded = 'Email and password are required'
export const LoginBody = Type.Object({
  authMode: AuthModeMember,
  email: Filled(email, { refusal: bothNeeded }),
  password: Secret(password, bothNeeded),
  authType: SessionTypeMember,
  tenant_Id: TenantMember,
  inviteToken: InviteMember,
})

const personNeeded = 'Email, password, and firstName are required'
export const RegisterBody = Type.Object({
  authMode: AuthModeMember,
  authType: SessionTypeMember,
  email: Filled(email, { refusal: personNeeded }),
  password: NewPassword(password, personNeeded),
  firstName: Filled('Ada', { refusal: personNeeded }),
  lastName: Filled('Lovelace', { refusal: 'lastName is required' }),
  phone: OptionalText('+41 44 123 45 67'),
  link: Link(),
  inviteToken: OptionalSecret(linkToken),
  tenant: Type.Optional(
    Type.Object(
      { name: Filled('Analytical Engines') },
      { lenient: true, description: 'Needed where every registration makes a tenant.' },
    ),
  ),
  roleName: OptionalText('user', 'One of ALLOWED_ROLES_MULTI_TENANT.'),
})

/** Asks for a mail with a link or code. */
export const LinkBody = Type.Object({
  email: Filled(email, { refusal: 'Email is required' }),
  mode: Type.Optional(OneOf(['link', 'code'], { default: 'link', refusal: "Invalid mode. Must be 'link' or 'code'" })),
  link: Link('Needed for a link.'),
})

export const MagicLinkQuery = Type.Object({
  authMode: AuthModeMember,
  authType: SessionTypeMember,
  email: Type.Optional(Text(email, { description: 'With a code.', refusal: 'Invalid email address' })),
  tenant_Id: TenantMember,
  inviteToken: InviteMember,
})

export const FirstSignInBody = Type.Object({
  authMode: AuthModeMember,
  authType: SessionTypeMember,
  token: Secret(linkToken, 'Token and new password are required'),
  password: NewPassword(password, 'Token and new password are required'),
})

export const TokenParams = Type.Object({ token: Text(linkToken) })

const EmailWithCode = Type.Optional(Text(email, { description: 'With a code.', refusal: 'Invalid email address' }))
export const ResetBody = Type.Object({
  password: NewPassword(password, 'Password is required'),
  email: EmailWithCode,
})
export const ResetQuery = Type.Object({ email: EmailWithCode })

/** `email` is needed of callers without a session. */
export const ResendBody = Type.Object({ link: Link(neededLink), email: OptionalText(email) })

export const EmailChangeBody = Type.Object({
  email: Filled('ada@example.org', { refusal: 'Email is required' }),
  link: Link(),
  currentPassword: OptionalSecret(password),
})

const passwordsNeeded = 'Current and new password are required'
export const PasswordChangeBody = Type.Object({
  currentPassword: Secret(password, passwordsNeeded),
  newPassword: NewPassword('wrong donkey fuse', passwordsNeeded),
})

/** Both bodies of existing clients count. */
export const PasswordOfBody = Type.Object({
  userId: Filled('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { refusal: 'User ID and new password are required' }),
  newPassword: OptionalSecret(password),
  password: OptionalSecret(password),
})

/** 400 unless the text is an e-mail address; its canonical form. */
export function emailOf(typed: string): string {
  const canonical = canonicalEmail(typed)
  if (canonical === undefined) throw new AppError(400, 'Invalid email address')
  return canonical
}

/** As above; undefined when it is absent or empty. */
export function optionalEmailOf(typed: string | undefined): string | undefined {
  return typed === undefined || typed === '' ? undefined : emailOf(typed)
}

/**
 * 400 unless 8 to 128 characters of any script; a lone surrogate is no character. A hash is refused: whoever gives one means
 * the password that it was made of, and who reads the hash elsewhere could sign in with it.
 */
export function checkNewPassword(password: string): void {
  const length = [...password].length
  if (length < 8 || length > 128) throw new AppError(400, 'Password must be 8 to 128 characters long')
  if (!password.isWellFormed()) throw new AppError(400, 'Password must be valid Unicode text')
  if (isPasswordHash(password)) throw new AppError(400, 'Password must not be the hash of a password')
}

/** 400 for names longer than anybody's. */
export function nameOf(typed: string): string {
  const name = typed.trim()
  if (name.length > 255 || name.includes('\0')) throw new AppError(400, 'Names must be at most 255 characters long')
  return name
}

/**
 * The base address that a mailed link begins with: `link` when it is one of the trusted frontends or a path there, else
 * 400 with `refusal`. Ask before any account is looked up.
 *
 * The text must *be* a trusted address (AUTH_APP_URL, the settings' app_url and project_url), or begin with the very text
 * of its origin and go on with a plain path, but for trailing slashes: one that every reader of addresses takes as it is
 * written. So no reading of it can differ from the browser's.
 */
export function trustedLink(
  deps: Configuration & CurrentSettings,
  link: string | undefined,
  refusal = 'Invalid link',
): string {
  const address = link !== undefined && link.length <= longest ? withoutLastSlashes(link) : ''
  if (!trustedAddresses(deps).some((trusted) => address === trusted || isPathAt(new URL(trusted).origin, address)))
    throw untrusted(deps, refusal, link === undefined)
  return address
}

/**
 * An address below a trusted frontend, to send a browser back to; else 400 with `refusal`. It begins with the very text
 * of a trusted origin and a slash, so whatever follows can only be a path and query there; a fragment is refused.
 */
export function trustedReturn(
  deps: Configuration & CurrentSettings,
  address: string | undefined,
  refusal: string,
): string {
  const text = address !== undefined && address.length <= longest ? address : ''
  const isPlain = /^https?:\/\/[\w.~:/?@!$&'()*+,;=%[\]-]+$/.test(text) && URL.canParse(text)
  const origins = trustedAddresses(deps).map((trusted) => new URL(trusted).origin)
  if (isPlain && origins.some((origin) => text === origin || text.startsWith(`${origin}/`))) return text
  throw untrusted(deps, refusal)
}

/** The first trusted frontend; 400 where the installation names none. */
export function defaultLink(deps: Configuration & CurrentSettings, refusal = 'Invalid link'): string {
  const [first] = trustedAddresses(deps)
  if (first === undefined) throw untrusted(deps, refusal)
  return first
}

/** A request for a mail: a link below a trusted frontend, or a code. */
export type LinkRequest = { readonly email: string } & LinkOrCode

/** Reads a request for a magic link or a password reset. 400 for a malformed or untrusted one. */
export function linkRequestOf(
  deps: Configuration & CurrentSettings,
  { email, mode = 'link', link }: Static<typeof LinkBody>,
): LinkRequest {
  const context: LinkOrCode = mode === 'code' ? { mode } : { mode, link: trustedLink(deps, link) }
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

/** Says what would be trusted, and not which addresses are; where no link was sent, that too. */
function untrusted(deps: Configuration & CurrentSettings, refusal: string, isMissing = false): AppError {
  const wanted =
    trustedAddresses(deps).length === 0
      ? 'This installation trusts no frontend yet: name the address of yours in AUTH_APP_URL, or as app_url in the settings'
      : 'Must be the address of a frontend in AUTH_APP_URL or in the settings (app_url, project_url), or a path there'
  const details = isMissing ? `link is missing. ${wanted}` : wanted
  return new AppError(400, refusal, { details, members: { details } })
}

function trustedAddresses({ settings, config }: Configuration & CurrentSettings): string[] {
  const { app_url, project_url } = settings.current()
  return [...config.auth.appUrls, ...[app_url, project_url].filter(isWebAddress).map(withoutLastSlashes)]
}

/** Settings are free text: only http(s) addresses without user name, query or fragment count. */
function isWebAddress(value: unknown): value is string {
  if (typeof value !== 'string' || !/^https?:\/\/[^\\\s?#@]+$/i.test(value)) return false
  return URL.canParse(value)
}

/** A route under `/auth`: bodies are small here, and only what the shape of the answer names can leave. */
/** The same for the routes of one chapter. */
export const authRoutes =
  (tag: Tag) =>
  <const D extends Omit<Declaration, 'tag'>>(declaration: D, options: DeclaredOptions = {}) =>
    authRoute({ tag, ...declaration }, options)

export const authRoute = <const D extends Declaration>(declaration: D, options: DeclaredOptions = {}) =>
  route({ exact: true, errors: 'auth', ...declaration }, { bodyLimit: 16_384, ...options })

/**
 * The answers of the endpoints. They are serialised by these shapes, so a member that is not named here cannot leave.
 */

const exampleId = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
const person = { id: exampleId, email: 'ada@example.com', firstName: 'Ada', lastName: 'Lovelace' }
/** Not in the example of an answer: it comes in another one. */
const otherwise = { examples: [] }

const PersonShape = Type.Object({
  id: Id(),
  email: NullableText('ada@example.com'),
  firstName: Text('Ada'),
  lastName: NullableText('Lovelace'),
})

const RoleShape = Type.Object({
  id: Id(),
  name: Text('user'),
  description: NullableText('Registered users'),
  isTenantSpecific: Type.Boolean(),
  canInviteRoleIds: Anything([]),
  app_access: Anything(null),
})

const PermissionShape = Type.Object({
  id: Id(),
  action: Text('read'),
  collection: Text('products'),
  role_Id: Id(),
  fields: Anything(['*']),
  conditions: Anything(null),
  relConditions: Anything(null),
  defaultValues: Anything(null),
  createdAt: Text('2026-03-14T09:26:53.589Z'),
  updatedAt: Text('2026-03-14T09:26:53.589Z'),
})

const sessionToken = Text('eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IV7pAx_Zmeo')

const AuthModeShape = OneOf(['jwt', 'cookie'])

const SignedInMembers = {
  user: PersonShape,
  role: RoleShape,
  permissions: Type.Array(PermissionShape),
  tenant: Type.Union([RowOf({ id: exampleId, name: 'Analytical Engines' }), Type.Null()]),
}

/**
 * The common answer of everything that signs a user in; `token` only in jwt mode. Or the challenge for
 * a second factor: then nothing but that.
 */
export const SignedInShape = Type.Object({
  message: Type.Optional(Text('Authentication successful')),
  token: Type.Optional(sessionToken),
  authMode: Type.Optional(AuthModeShape),
  ...Type.Partial(Type.Object(SignedInMembers)).properties,
  twoFactorRequired: Type.Optional(Type.Literal(true, otherwise)),
  twoFactorToken: Type.Optional(Text('0f3a5d1f0c2b7e44', otherwise)),
  code: Type.Optional(Type.Literal('TWO_FACTOR_REQUIRED', otherwise)),
})

/** The same without a session: until the address is verified, or where no answer may tell whether it was known. */
export const RegisteredShape = Type.Object({
  message: Text('User registered successfully'),
  token: Type.Optional(sessionToken),
  authMode: Type.Optional(AuthModeShape),
  requiresEmailVerification: Type.Optional(Type.Boolean(otherwise)),
  ...Type.Partial(Type.Object(SignedInMembers)).properties,
})

export const MeShape = Type.Object({
  user: RowOf({ ...person, emailVerified: true, phone: null, language: null }),
  role: RoleShape,
  permissions: Type.Array(PermissionShape),
  tenant: NullableId(),
})

export const RefreshedShape = Type.Object({
  message: Type.Optional(Text('Authentication successful')),
  token: Type.Optional(sessionToken),
  authMode: AuthModeShape,
  expiresIn: Count(604800, { description: 'Seconds.' }),
})

export const CheckShape = Type.Object({
  valid: Type.Boolean(),
  user: Type.Object({ id: Id() }),
  tenant: Type.Optional(
    Type.Union([Type.Object({ id: Id() }), Type.Null()], {
      description: 'With MULTI_TENANT: the one the session is at.',
    }),
  ),
})

/** `lastUsedAt` is exact to five minutes. */
export const SessionsShape = Type.Object({
  sessions: Type.Array(
    Type.Object({
      id: Id(),
      type: Text('web'),
      ipAddress: NullableText('203.0.113.7'),
      userAgent: NullableText('Mozilla/5.0'),
      tenant_Id: NullableId(),
      createdAt: Text('2026-03-14T09:26:53.589Z'),
      lastUsedAt: Text('2026-03-14T09:26:53.589Z'),
      expiresAt: Text('2026-04-13T09:26:53.589Z'),
      current: Type.Boolean(),
      client: Type.Union(
        [
          Type.Object({ id: Text('dbc_47DEQpj8HBSa'), name: Text('Example app'), scopes: Type.Array(Text('read')) }),
          Type.Null(),
        ],
        { description: 'The program that a user has given access; null where users have signed in themselves.' },
      ),
    }),
  ),
})

export const EndedShape = Type.Object({ message: Text('Sessions ended successfully'), ended: Count(2) })
