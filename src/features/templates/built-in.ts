import { button, code, page } from './frame.ts'

/** A mail template: subject and HTML, both Liquid (spec: Email template). */
export type Template = { readonly subject: string; readonly body: string }

/** The types of templates that are built in; the names of the specification. */
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

/** What is sent when nobody has stored a template of the type. */
export const builtInTemplates: Readonly<Record<TemplateType, Template>> = {
  verification: {
    subject: 'Confirm your e-mail address for {{ project_name }}',
    body: page({
      preheader: 'Confirm your e-mail address to finish setting up your account.',
      heading: 'Confirm your e-mail address',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>please confirm that this e-mail address is yours. The link works for 24 hours.</p>
${button('{{ verificationLink }}', 'Confirm e-mail address')}
<p class="quiet">If you did not create an account at {{ project_name }}, do not confirm: ignore this mail.</p>`,
    }),
  },
  email_change: {
    subject: 'Confirm your new e-mail address for {{ project_name }}',
    body: page({
      preheader: 'Confirm that your account is to have this e-mail address.',
      heading: 'Confirm your new e-mail address',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>the account{% if oldEmail != '' %} with the address {{ oldEmail }}{% endif %} at {{ project_name }} is to have this e-mail address from now on. It is signed in to,
and gets its mail, by this address when you confirm. The link works for 24 hours.</p>
${button('{{ verificationLink }}', 'Confirm new e-mail address')}
<p class="quiet">If you did not ask for this, do not confirm, or the account of somebody else has your address: ignore this mail.</p>`,
    }),
  },
  email_change_notice: {
    subject: 'Your e-mail address for {{ project_name }} is being changed',
    body: page({
      preheader: 'Somebody asked for another e-mail address for your account.',
      heading: 'Your e-mail address is being changed',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>your account at {{ project_name }} is to have the e-mail address {{ newEmail }} instead of this one, as soon as that is confirmed.</p>
<p class="quiet">If it was not you, set a new password at once: that ends the change, and all sessions of your account.</p>`,
    }),
  },
  magic_link: {
    subject: 'Sign in to {{ project_name }}',
    body: page({
      preheader: 'Somebody asked to sign in with your e-mail address.',
      heading: 'Sign in',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
{% if magicCode != '' %}<p>type this code to sign in. It works once, for 15 minutes.</p>
${code('{{ magicCode }}')}
{% else %}<p>follow this link to sign in. It works once, for an hour.</p>
${button('{{ magicLink }}', 'Sign in')}
{% endif %}<p class="quiet">If you did not ask to sign in, ignore this mail and give it to nobody.</p>`,
    }),
  },
  password_reset: {
    subject: 'Set a new password for {{ project_name }}',
    body: page({
      preheader: 'Somebody asked for a new password for your account.',
      heading: 'Set a new password',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
{% if resetPasswordCode != '' %}<p>type this code to set a new password. It works once, for 15 minutes.</p>
${code('{{ resetPasswordCode }}')}
{% else %}<p>follow this link to set a new password. It works once, for an hour.</p>
${button('{{ resetPasswordLink }}', 'Set a new password')}
{% endif %}<p class="quiet">If you did not ask for a new password, ignore this mail: yours stays as it is.</p>`,
    }),
  },
  invite: {
    subject: 'You are invited to {{ tenant.name }} at {{ project_name }}',
    body: page({
      preheader: 'Accept the invitation to join {{ tenant.name }}.',
      heading: 'You are invited to {{ tenant.name }}',
      content: `
<p>Hello{% if name != '' %} {{ name }}{% endif %},</p>
<p>you are invited to join {{ tenant.name }} at {{ project_name }}. {% if existing != '' %}Sign in with your account to
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
<p>your account with the e-mail address {{ user.email }} has been created.</p>
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
