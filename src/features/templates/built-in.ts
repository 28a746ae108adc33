/** A mail template: subject and HTML, both Liquid (spec: Email template). */
export type Template = { readonly subject: string; readonly body: string }

/** The types of templates that are built in; the names of the specification. */
export type TemplateType =
  | 'verification'
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

function code(symbols: string): string {
  return `<p class="action"><span class="code">${symbols}</span></p>`
}

function button(link: string, label: string): string {
  return `<p class="action"><a class="button" href="${link}" style="background-color:{{ project_color }}">${label}</a></p>
<p class="quiet">If the button does not work, copy this address into your browser:<br>
<a href="${link}">${link}</a></p>`
}

/**
 * The frame of every built-in mail. One column that shrinks with the screen; a table only around it, because Outlook
 * knows no max-width on blocks. Colours follow the reader's light or dark scheme.
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
body { margin: 0; padding: 0; background-color: #f4f4f6; color: #1f2430; }
.frame { width: 100%; background-color: #f4f4f6; }
.card { max-width: 560px; margin: 0 auto; background-color: #ffffff; border-radius: 12px; }
.inner { padding: 32px; font: 16px/1.5 -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; }
h1 { margin: 0 0 16px; font-size: 22px; line-height: 1.3; }
p { margin: 0 0 16px; overflow-wrap: anywhere; }
.action { margin: 24px 0; }
.button { display: inline-block; padding: 12px 24px; border-radius: 8px; color: #ffffff; font-weight: 600; text-decoration: none; }
.code { font: 700 28px/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; letter-spacing: 4px; }
.quiet, .footer { color: #5c6370; font-size: 14px; }
.preheader { display: none; max-height: 0; overflow: hidden; }
@media (max-width: 480px) { .inner { padding: 20px; } .card { border-radius: 0; } }
@media (prefers-color-scheme: dark) {
  body, .frame { background-color: #15171c !important; color: #e6e8ee !important; }
  .card { background-color: #1f2229 !important; }
  .quiet, .footer { color: #a4abb8 !important; }
  a:not(.button) { color: #b79bff; }
}
</style>
</head>
<body>
<div class="preheader" style="display:none;max-height:0;overflow:hidden">${preheader}</div>
<table class="frame" role="presentation" width="100%" cellpadding="0" cellspacing="0"><tr><td align="center" style="padding:24px 12px">
<table class="card" role="presentation" width="100%" cellpadding="0" cellspacing="0" style="max-width:560px"><tr><td class="inner" align="left">
{% if logo_url != '' %}<p><img src="{{ logo_url }}" alt="{{ project_name }}" height="40" style="border:0"></p>{% endif %}
<h1>${heading}</h1>
${content}
{% if email_signature != '' %}<p>{{ email_signature | escape | newline_to_br | raw }}</p>{% endif %}
<p class="footer">{{ project_name }} · {{ currentYear }}</p>
</td></tr></table>
</td></tr></table>
</body>
</html>`
}
