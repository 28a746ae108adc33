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
const invite = { variables: ['inviteLink', 'inviterName', 'tenant', 'existing', ...expiry] }

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

/** A mail template: subject and HTML, both Liquid. */
export type Template = { readonly subject: string; readonly body: string }

/** The types of templates that are built in. */
export type TemplateType =
  | 'verification'
  | 'email_change'
  | 'email_change_notice'
  | 'magic_link'
  | 'password_reset'
  | 'invite'
  | 'welcome'
  | 'notification'
  | 'test'
  | 'workflow'

const style = {
  card: 'max-width:600px;margin:0 auto;background-color:#ffffff;border:1px solid #e4e4ea;border-radius:12px',
  inner: "padding:32px;color:#1f2430;font:16px/1.5 -apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif",
  heading: 'margin:0 0 16px;color:#1f2430;font-size:22px;line-height:1.3',
  button: 'display:inline-block;padding:12px 24px;border-radius:8px;color:#ffffff;font-weight:600;text-decoration:none',
  code: 'display:inline-block;padding:8px 16px;border-radius:8px;background-color:#f0edf6;font:700 28px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;letter-spacing:4px',
  quiet: 'color:#5c6370;font-size:14px',
  footer: 'margin:24px 0 0;padding-top:16px;border-top:1px solid #e4e4ea;color:#5c6370;font-size:14px',
} as const

/** The texts of types without a stored template. */
export const builtInTemplates: Readonly<Record<TemplateType, Template>> = {
  verification: {
    subject: 'Confirm your e-mail address for {{ project_name }}',
    body: page({
      preheader: 'Confirm your e-mail address to finish setting up your account.',
      heading: 'Confirm your e-mail address',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>Please confirm that this e-mail address is yours. The link works for 24 hours.</p>
${button('{{ verificationLink }}', 'Confirm e-mail address')}
<p class="quiet">If you did not create an account at {{ project_name }}, ignore this mail.</p>`,
    }),
  },
  email_change: {
    subject: 'Confirm your new e-mail address for {{ project_name }}',
    body: page({
      preheader: 'Confirm the new e-mail address of your account.',
      heading: 'Confirm your new e-mail address',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>You asked to change the e-mail address of your account{% if oldEmail != '' %} ({{ oldEmail }}){% endif %} at {{ project_name }} to this one. After you confirm, you sign in with this
address and receive mail here. The link works for 24 hours.</p>
${button('{{ verificationLink }}', 'Confirm new e-mail address')}
<p class="quiet">If you did not ask for this, ignore this mail. If you confirm, somebody else's account gets your address.</p>`,
    }),
  },
  email_change_notice: {
    subject: 'Your e-mail address for {{ project_name }} is being changed',
    body: page({
      preheader: 'Somebody asked for another e-mail address for your account.',
      heading: 'Your e-mail address is being changed',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>Somebody asked to change the e-mail address of your account at {{ project_name }} to {{ newEmail }}. The change takes effect once the new address is confirmed.</p>
<p class="quiet">If it was not you, set a new password at once. That cancels the change and ends all sessions of your account.</p>`,
    }),
  },
  magic_link: {
    subject: 'Sign in to {{ project_name }}',
    body: page({
      preheader: 'Somebody asked to sign in with your e-mail address.',
      heading: 'Sign in',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
{% if magicCode != '' %}<p>Type this code to sign in. It works once, for 15 minutes.</p>
${code('{{ magicCode }}')}
{% else %}<p>Follow this link to sign in. It works once, for an hour.</p>
${button('{{ magicLink }}', 'Sign in')}
{% endif %}<p class="quiet">If you did not ask to sign in, ignore this mail and do not pass it on.</p>`,
    }),
  },
  password_reset: {
    subject: 'Set a new password for {{ project_name }}',
    body: page({
      preheader: 'Somebody asked for a new password for your account.',
      heading: 'Set a new password',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
{% if resetPasswordCode != '' %}<p>Type this code to set a new password. It works once, for 15 minutes.</p>
${code('{{ resetPasswordCode }}')}
{% else %}<p>Follow this link to set a new password. It works once, for an hour.</p>
${button('{{ resetPasswordLink }}', 'Set a new password')}
{% endif %}<p class="quiet">If you did not ask for a new password, ignore this mail. Your password stays as it is.</p>`,
    }),
  },
  invite: {
    subject: 'You are invited to {{ tenant.name }} at {{ project_name }}',
    body: page({
      preheader: 'Accept the invitation to join {{ tenant.name }}.',
      heading: 'You are invited to {{ tenant.name }}',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>You are invited to join {{ tenant.name }} at {{ project_name }}. {% if existing != '' %}Sign in with your account to
accept.{% else %}Create your account to accept.{% endif %} The link works for 7 days.</p>
${button('{{ inviteLink }}', 'Accept the invitation')}
<p class="quiet">If you do not know {{ tenant.name }}, you can ignore this mail.</p>`,
    }),
  },
  welcome: {
    subject: 'Welcome to {{ project_name }}',
    body: page({
      preheader: 'Your account is ready.',
      heading: 'Welcome to {{ project_name }}',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>Your account with the e-mail address {{ user.email }} has been created.</p>
{% if loginLink != '' %}${button('{{ loginLink }}', 'Sign in')}{% endif %}`,
    }),
  },
  notification: {
    subject: '{{ notification_title }}',
    body: page({
      preheader: '{{ notification_title }}',
      heading: '{{ notification_title }}',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>{{ notification_message | escape | newline_to_br | raw }}</p>
{% if action_url %}${button('{{ action_url }}', "{{ action_text | default: 'Open' }}")}{% endif %}`,
    }),
  },
  // The whole text of a workflow's author.
  workflow: { subject: '{{ mail_subject }}', body: '{{ mail_body | raw }}' },
  test: {
    subject: 'Test mail from {{ project_name }}',
    body: page({
      preheader: 'The mail settings work.',
      heading: 'The mail settings work',
      content: `
<p>This mail was asked for by an administrator of {{ project_name }} at {{ currentTime }} on {{ currentDate }}.</p>
<p class="quiet">There is nothing else to do.</p>`,
    }),
  },
}

/** A code to type, in letters that cannot be mistaken for each other. */
function code(symbols: string): string {
  return `<p class="action"><span class="code" style="${style.code}">${symbols}</span></p>`
}

/** A link that looks like a button; a table cell, because Outlook pads nothing else. The address follows for copying. */
function button(link: string, label: string): string {
  return `<table role="presentation" cellpadding="0" cellspacing="0" style="margin:24px 0"><tr>
<td bgcolor="{{ project_color }}" style="border-radius:8px;background-color:{{ project_color }}"><a class="button" href="${link}" style="${style.button}">${label}</a></td>
</tr></table>
<p class="quiet" style="${style.quiet}">If the button does not work, copy this address into your browser:<br>
<a href="${link}" style="color:{{ project_color }}">${link}</a></p>`
}

/**
 * The frame of every built-in mail. One column of 600 pixels that shrinks with the screen; tables only where Outlook
 * needs them. The styles that matter are on the elements, because some mail programs drop the style sheet; what is in
 * it adapts to phones and to the dark.
 */
function page({ preheader, heading, content }: { preheader: string; heading: string; content: string }): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>${heading}</title>
<style>
:root { color-scheme: light dark; }
p { margin: 0 0 16px; overflow-wrap: anywhere; }
.action { margin: 24px 0; }
.quiet { color: #5c6370; font-size: 14px; }
@media (max-width: 480px) { .inner { padding: 24px 20px !important; } .button { display: block !important; text-align: center; } }
@media (prefers-color-scheme: dark) {
  body, .frame { background-color: #15171c !important; }
  .card { background-color: #1f2229 !important; border-color: #343945 !important; }
  .inner, h1 { color: #e6e8ee !important; }
  .code { background-color: #2c303a !important; color: #ffffff !important; }
  .quiet, .footer { color: #a4abb8 !important; }
  .footer { border-color: #343945 !important; }
  a:not(.button) { color: #b79bff !important; }
}
</style>
</head>
<body style="margin:0;padding:0;background-color:#f4f4f6">
<div class="preheader" style="display:none;max-height:0;overflow:hidden">${preheader}</div>
<table class="frame" role="presentation" width="100%" cellpadding="0" cellspacing="0" bgcolor="#f4f4f6"><tr><td align="center" style="padding:24px 12px">
<!--[if mso]><table role="presentation" width="600"><tr><td><![endif]-->
<table class="card" role="presentation" width="100%" cellpadding="0" cellspacing="0" style="${style.card}"><tr><td class="inner" align="left" style="${style.inner}">
{% if logo_url != '' %}<p style="margin:0 0 24px"><img src="{{ logo_url }}" alt="{{ project_name }}" height="40" style="display:block;border:0;height:40px;width:auto;max-width:100%"></p>{% endif %}
<h1 style="${style.heading}">${heading}</h1>
${content}
{% if email_signature != '' %}<p>{{ email_signature | escape | newline_to_br | raw }}</p>{% endif %}
<p class="footer" style="${style.footer}">{{ project_name }} · {{ currentYear }}</p>
</td></tr></table>
<!--[if mso]></td></tr></table><![endif]-->
</td></tr></table>
</body>
</html>`
}
