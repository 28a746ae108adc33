/** A code to type, in letters that cannot be mistaken for each other. */
export function code(symbols: string): string {
  return `<p class="action"><span class="code" style="${style.code}">${symbols}</span></p>`
}

/** A link that looks like a button; a table cell, because Outlook pads nothing else. The address follows for copying. */
export function button(link: string, label: string): string {
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
export function page({ preheader, heading, content }: { preheader: string; heading: string; content: string }): string {
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

const style = {
  card: 'max-width:600px;margin:0 auto;background-color:#ffffff;border:1px solid #e4e4ea;border-radius:12px',
  inner: "padding:32px;color:#1f2430;font:16px/1.5 -apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif",
  heading: 'margin:0 0 16px;color:#1f2430;font-size:22px;line-height:1.3',
  button: 'display:inline-block;padding:12px 24px;border-radius:8px;color:#ffffff;font-weight:600;text-decoration:none',
  code: 'display:inline-block;padding:8px 16px;border-radius:8px;background-color:#f0edf6;font:700 28px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;letter-spacing:4px',
  quiet: 'color:#5c6370;font-size:14px',
  footer: 'margin:24px 0 0;padding-top:16px;border-top:1px solid #e4e4ea;color:#5c6370;font-size:14px',
} as const
