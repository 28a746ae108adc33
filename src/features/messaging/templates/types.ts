import { builtInTemplates, type Template, type TemplateType } from './built-in.ts'

/** A type of template as its author sees it. */
type TypeInfo = {
  readonly type: string
  readonly label: string
  readonly description: string
  /** Its variables beyond the common ones; dots lead into objects. */
  readonly variables: readonly string[]
}

/** The variables of every template. */
export const commonVariableNames: readonly string[] = [
  ...['project_name', 'project_color', 'project_url', 'app_url', 'logo_url', 'email_signature', 'name'],
  ...['user.firstName', 'user.lastName', 'user.fullName', 'user.email', 'user.phone'],
  ...['tenant.name', 'tenant.logo', 'tenant.website', 'tenant.address', 'tenant.phone', 'tenant.email'],
  ...['loginLink', 'loginUrl', 'currentDate', 'currentTime', 'currentYear'],
]

const expiry = ['expiresAt', 'expirationDate']
const magicLink = { label: 'Sign in by link', variables: ['magicLink', 'magicLinkUrl', ...expiry] }
const magicCode = { label: 'Sign in by code', variables: ['magicCode', 'code', ...expiry] }
const reset = {
  label: 'Password reset',
  description: 'A link or a code to set a new password',
  variables: ['resetPasswordLink', 'resetUrl', 'resetPasswordCode', 'code', ...expiry],
}
const verification = {
  label: 'E-mail verification',
  description: 'A link that confirms an address',
  variables: ['verificationLink', 'verifyUrl', ...expiry],
}
const invite = { variables: ['inviteLink', 'inviterName', 'existing', ...expiry] }

type TypeEntry = Omit<TypeInfo, 'type'> & { readonly builtIn?: TemplateType }

/**
 * Both vocabularies: first the names of the specification, which are seeded, then those that say which of its mails
 * exactly, and `custom`, which is sent by extensions alone and has no built-in text.
 */
const known: Readonly<Record<string, TypeEntry>> = {
  magic_link: {
    label: 'Sign in by link or code',
    description: 'Signs in without a password',
    variables: ['magicLink', 'magicLinkUrl', 'magicCode', 'code', ...expiry],
    builtIn: 'magic_link',
  },
  invite: { label: 'Invitation', description: 'Invites to a tenant', ...invite, builtIn: 'invite' },
  password_reset: { ...reset, builtIn: 'password_reset' },
  welcome: { label: 'Welcome', description: 'Sent after a registration', variables: [], builtIn: 'welcome' },
  verification: { ...verification, builtIn: 'verification' },
  email_change: {
    label: 'Confirmation of a new address',
    description: 'A link that gives an account the address it is mailed to',
    variables: ['verificationLink', 'verifyUrl', 'oldEmail', ...expiry],
    builtIn: 'email_change',
  },
  email_change_notice: {
    label: 'Notice of a new address',
    description: 'Tells the old address of an account that it is being changed',
    variables: ['newEmail'],
    builtIn: 'email_change_notice',
  },
  notification: {
    label: 'Notification',
    description: 'Tells a user of something',
    variables: ['notification_title', 'notification_message', 'action_url', 'action_text'],
    builtIn: 'notification',
  },
  inviteNewUser: {
    label: 'Invitation of somebody new',
    description: 'Instead of invite, for addresses without an account',
    ...invite,
    builtIn: 'invite',
  },
  inviteExistingUser: {
    label: 'Invitation of a user',
    description: 'Instead of invite, for addresses with an account',
    ...invite,
    builtIn: 'invite',
  },
  magicLinkUrl: { ...magicLink, description: 'Instead of magic_link, where it has a link', builtIn: 'magic_link' },
  magicLinkCode: { ...magicCode, description: 'Instead of magic_link, where it has a code', builtIn: 'magic_link' },
  passwordReset: { ...reset, description: 'Instead of password_reset', builtIn: 'password_reset' },
  emailVerification: { ...verification, description: 'Instead of verification', builtIn: 'verification' },
  custom: { label: 'Custom', description: 'A mail of an extension; it brings the variables', variables: [] },
}

/** Every known type, in the order in which they are shown. */
export const templateTypes: readonly TypeInfo[] = Object.keys(known).map(infoOf)

/** The built-in text of a type; undefined for types without one. */
export function defaultTemplate(type: string): (TypeInfo & Template) | undefined {
  const builtIn = Object.hasOwn(known, type) ? known[type]?.builtIn : undefined
  return builtIn === undefined ? undefined : { ...infoOf(type), ...builtInTemplates[builtIn] }
}

/** The types with a text of their own; the other names stand for one of them. */
export const seededTypes: readonly TemplateType[] = [
  ...(['magic_link', 'invite', 'password_reset', 'welcome', 'verification', 'notification'] as const),
  ...(['email_change', 'email_change_notice'] as const),
]

/** Under which types the template of a mail is looked for: the one that says more comes first. */
export function lookupNames(type: string, variables: Readonly<Record<string, unknown>>): readonly string[] {
  if (type === 'magic_link') return [variables.magicCode ? 'magicLinkCode' : 'magicLinkUrl', type]
  if (type === 'invite') return [variables.existing ? 'inviteExistingUser' : 'inviteNewUser', type]
  if (type === 'password_reset') return ['passwordReset', type]
  return type === 'verification' ? ['emailVerification', type] : [type]
}

function infoOf(type: string): TypeInfo {
  const { label, description, variables } = known[type] as TypeEntry
  return { type, label, description, variables }
}
