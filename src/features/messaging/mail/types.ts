import type { SecretForm } from '../../../adapters/tokens.ts'
import { withoutLastSlashes } from '../../../language/text.ts'
import type { TemplateType } from '../templates/templates.ts'

/** The data of each type of mail. Kept in svc_EmailLog and shown to administrators: never a secret. */
export type MailContext = {
  /** `link`: the frontend's address that the verification link begins with. */
  verification: { readonly link: string }
  /** To the address that an account is to have; `link` as above. */
  email_change: { readonly link: string; readonly oldEmail: string }
  /** To the address that it has until then. */
  email_change_notice: { readonly newEmail: string }
  magic_link: LinkOrCode
  password_reset: LinkOrCode
  /** An invitation to a tenant, to an address without an account or with one. `link` as above. */
  inviteNewUser: { readonly link: string; readonly inviteId: string }
  inviteExistingUser: { readonly link: string; readonly inviteId: string }
  welcome: object
  /** Shows an administrator that mails arrive. */
  test: object
  /** Of an extension: the type of a template, and the variables that it brings. */
  custom: { readonly template: string; readonly variables: Readonly<Record<string, unknown>> }
}

/** A mail with a link below the frontend's address, or with a code to type. */
export type LinkOrCode = { readonly mode: 'link'; readonly link: string } | { readonly mode: 'code' }

export type MailType = keyof MailContext

/**
 * The purpose of a one-time secret; the first part of its identifier in svc_Verification. That of an invitation is kept
 * in its row of svc_Invite: an address may have several at a time.
 */
export type SecretPurpose =
  | 'email-verification'
  | 'email-change'
  | 'magic-link'
  | 'password-reset'
  | 'invite'
  // Of no mail: shown where the server was set up.
  | 'first-sign-in'

/** A secret that is made when the mail is sent and works once, for `lifetimeSeconds` from then. */
export type MailSecret = {
  readonly purpose: SecretPurpose
  readonly form: SecretForm
  readonly lifetimeSeconds: number
}

type MailTypeEntry<Type extends MailType> = {
  /** Undefined where the context names it. */
  readonly template: TemplateType | undefined
  /** Undefined for mails without a secret. */
  readonly purpose: SecretPurpose | undefined
  secretOf?(context: MailContext[Type]): Omit<MailSecret, 'purpose'>
  /** The user whose address it goes to, where that is not the one which its account has when it is sent. */
  readonly addressee?: 'wanted' | 'former'
  /** The template's variables beyond the common ones. Variables that a mode lacks are empty strings. */
  variables(context: MailContext[Type], secret: string): Readonly<Record<string, unknown>>
}

const minute = 60
const hour = 60 * minute
const day = 24 * hour

/** From sending; before, from inviting. */
export const inviteLifetimeSeconds = 7 * day

/** How long the link to a new address lives, from sending. */
const emailChangeSeconds = day

/** How long the account may wait for it, from asking: longer than the link. */
export const wantedEmailSeconds = 2 * emailChangeSeconds

const inviteSecret = () => ({ form: 'token', lifetimeSeconds: inviteLifetimeSeconds }) as const

/** Every type of mail. A new one is an entry here, a context above and a built-in template. */
export const mailTypes: { readonly [Type in MailType]: MailTypeEntry<Type> } = {
  verification: {
    template: 'verification',
    purpose: 'email-verification',
    secretOf: () => ({ form: 'token', lifetimeSeconds: day }),
    variables: ({ link }, token) => {
      const verificationLink = below(link, 'verify-email', token)
      return { verificationLink, verifyUrl: verificationLink }
    },
  },
  email_change: {
    template: 'email_change',
    purpose: 'email-change',
    addressee: 'wanted',
    secretOf: () => ({ form: 'token', lifetimeSeconds: emailChangeSeconds }),
    variables: ({ link, oldEmail }, token) => {
      const verificationLink = below(link, 'verify-email', token)
      return { verificationLink, verifyUrl: verificationLink, oldEmail }
    },
  },
  email_change_notice: {
    template: 'email_change_notice',
    purpose: undefined,
    addressee: 'former',
    variables: ({ newEmail }) => ({ newEmail }),
  },
  magic_link: {
    template: 'magic_link',
    purpose: 'magic-link',
    secretOf: linkOrCode,
    variables: (context, secret) =>
      context.mode === 'link'
        ? { magicLink: below(context.link, 'magiclink', secret), magicCode: '' }
        : { magicLink: '', magicCode: secret },
  },
  password_reset: {
    template: 'password_reset',
    purpose: 'password-reset',
    secretOf: linkOrCode,
    variables: (context, secret) => {
      const resetPasswordLink = context.mode === 'link' ? below(context.link, 'reset-password', secret) : ''
      return {
        resetPasswordLink,
        resetUrl: resetPasswordLink,
        resetPasswordCode: context.mode === 'code' ? secret : '',
      }
    },
  },
  inviteNewUser: {
    template: 'invite',
    purpose: 'invite',
    secretOf: inviteSecret,
    variables: ({ link }, token) => ({
      inviteLink: `${withoutLastSlashes(link)}/accept-invite?token=${token}`,
      existing: '',
    }),
  },
  inviteExistingUser: {
    template: 'invite',
    purpose: 'invite',
    secretOf: inviteSecret,
    variables: ({ link }, token) => ({
      inviteLink: `${withoutLastSlashes(link)}/accept-invite?token=${token}&existing=true`,
      existing: 'true',
    }),
  },
  welcome: { template: 'welcome', purpose: undefined, variables: () => ({}) },
  test: { template: 'test', purpose: undefined, variables: () => ({}) },
  custom: { template: undefined, purpose: undefined, variables: ({ variables }) => variables },
}

/** A code lives shorter because it can be guessed. */
function linkOrCode({ mode }: LinkOrCode): Omit<MailSecret, 'purpose'> {
  return mode === 'link' ? { form: 'token', lifetimeSeconds: hour } : { form: 'code', lifetimeSeconds: 15 * minute }
}

/** The frontend's route that calls the API's. */
function below(link: string, route: string, token: string): string {
  return `${withoutLastSlashes(link)}/auth/${route}/${token}`
}

/** The secret of one mail; undefined for mails without one. */
export function secretOfMail<Type extends MailType>(type: Type, context: MailContext[Type]): MailSecret | undefined {
  const { purpose, secretOf } = mailTypes[type] as MailTypeEntry<Type>
  return purpose === undefined || secretOf === undefined ? undefined : { purpose, ...secretOf(context) }
}

/** The types whose secrets replace each other: a newer mail of one makes an older one worthless. */
export function typesOfPurpose(purpose: SecretPurpose): readonly MailType[] {
  return (Object.keys(mailTypes) as MailType[]).filter((type) => mailTypes[type].purpose === purpose)
}

/** Where the hash of a secret is found: one live row per purpose and address. */
export function secretIdentifier(purpose: SecretPurpose, email: string): string {
  return `${purpose}:${email}`
}

/** Of the challenge that says which address a user's account is to have. */
export const wantedEmailKey = (userId: string): string => `email-change:${userId}`

/**
 * The owner of a mail's secret, as `secretIdentifier` wants it: the address's, but a new address may be wanted by several
 * accounts.
 */
export function secretOwner(purpose: SecretPurpose, email: string, userId: string | null): string {
  return purpose === 'email-change' ? `${userId} ${email}` : email
}

/** The type of the template of a mail: of svc_Template, or built in. */
export function templateOf<Type extends MailType>(type: Type, context: MailContext[Type]): string {
  return mailTypes[type].template ?? (context as MailContext['custom']).template
}
