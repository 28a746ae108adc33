import { type Static, Type } from 'typebox'
import { canonicalEmail } from '../../../adapters/email-address.ts'
import { AppError } from '../../../errors.ts'
import { Filled, OneOf, Text } from '../../../http/shapes.ts'
import type { SessionType } from './session-store.ts'

/** What requests under `/auth` hold. Members that are not declared have no say in anything. */

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
const OptionalSecret = (example: string) =>
  Type.Optional(Type.String({ minLength: 1, examples: [example], lenient: true }))
const OptionalText = (example: string, description?: string) =>
  Type.Optional(Filled(example, { lenient: true, ...(description !== undefined && { description }) }))

const password = 'correct horse battery'
const email = 'ada@example.com'
const link = 'https://app.example.com/welcome'
const token = '5f1d7a84db00d2fce00b31a7fc73224f5f1d7a84db00d2fce00b31a7fc73224f'

/** The base address of a mailed link. */
export const Link = (refusal = 'Invalid link') =>
  Type.Optional(Text(link, { refusal, description: 'Where the mailed link leads: an address of a trusted frontend.' }))

/** Wrong however it is wrong: a proof that does not fit is a try like any other. */
const proof = (type: string, example: unknown, description?: string) =>
  Type.Optional(
    Type.Unsafe<unknown>({ type, examples: [example], unchecked: true, ...(description && { description }) }),
  )

/** What shows that the user is there just now: one of them. */
export const Proof = {
  currentPassword: proof('string', password),
  twoFactorCode: proof('string', '123456'),
  passkey: proof('object', { challengeId: token, response: { id: 'kQ7x' } }, 'The answer to a challenge.'),
}
export const ProofBody = Type.Object(Proof, {
  description: 'With the session cookie one proof is needed that the user is there.',
  examples: [{ currentPassword: password }],
})
export type Proven = Static<typeof ProofBody>

/** How somebody wants to be signed in. */
export const SignIn = { authMode: AuthModeMember, authType: SessionTypeMember, tenant_Id: TenantMember }

export const AuthModeBody = Type.Object({ authMode: AuthModeMember })

const bothNeeded = 'Email and password are required'
export const LoginBody = Type.Object({
  authMode: AuthModeMember,
  email: Filled(email, { refusal: bothNeeded }),
  password: Secret(password, bothNeeded),
  authType: SessionTypeMember,
  tenant_Id: TenantMember,
})

const personNeeded = 'Email, password, and firstName are required'
export const RegisterBody = Type.Object({
  authMode: AuthModeMember,
  authType: SessionTypeMember,
  email: Filled(email, { refusal: personNeeded }),
  password: Secret(password, personNeeded),
  firstName: Filled('Ada', { refusal: personNeeded }),
  lastName: Filled('Lovelace', { refusal: 'lastName is required' }),
  phone: OptionalText('+41 44 123 45 67'),
  link: Link(),
  inviteToken: OptionalSecret(token),
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
  link: Link(),
})

export const MagicLinkQuery = Type.Object({
  authMode: AuthModeMember,
  authType: SessionTypeMember,
  email: Type.Optional(Text(email, { description: 'With a code.', refusal: 'Invalid email address' })),
  tenant_Id: TenantMember,
})

export const TokenParams = Type.Object({ token: Text(token) })

const EmailWithCode = Type.Optional(Text(email, { description: 'With a code.', refusal: 'Invalid email address' }))
export const ResetBody = Type.Object({
  password: Secret(password, 'Password is required'),
  email: EmailWithCode,
})
export const ResetQuery = Type.Object({ email: EmailWithCode })

/** `email` is needed of callers without a session. */
export const ResendBody = Type.Object({ link: Link(), email: OptionalText(email) })

export const EmailChangeBody = Type.Object({
  email: Filled('ada@example.org', { refusal: 'Email is required' }),
  link: Link(),
  currentPassword: OptionalSecret(password),
})

const passwordsNeeded = 'Current and new password are required'
export const PasswordChangeBody = Type.Object({
  currentPassword: Secret(password, passwordsNeeded),
  newPassword: Secret('wrong donkey fuse', passwordsNeeded),
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

/** 400 unless 8 to 128 characters of any script; a lone surrogate is no character. */
export function checkNewPassword(password: string): void {
  const length = [...password].length
  if (length < 8 || length > 128) throw new AppError(400, 'Password must be 8 to 128 characters long')
  if (!password.isWellFormed()) throw new AppError(400, 'Password must be valid Unicode text')
}

/** 400 for names longer than anybody's. */
export function nameOf(typed: string): string {
  const name = typed.trim()
  if (name.length > 255 || name.includes('\0')) throw new AppError(400, 'Names must be at most 255 characters long')
  return name
}
