import type { KeptMail, ListedMail } from './queries.ts'

/** All mails, newest first. */
export function listPage(mails: readonly ListedMail[]): string {
  const rows = mails.map(
    ({ id, keptAt, to, type, subject }) =>
      markup`<tr><td><time>${timeOf(keptAt)}</time></td><td>${to}</td><td>${type}</td><td><a href="/_dev/mail/${id}">${subject}</a></td></tr>`,
  )
  const none = markup`<p>No mail yet. What the mail worker has to send while no sender is configured appears here.</p>`
  const table = markup`<table><thead><tr><th>Time (UTC)</th><th>To</th><th>Type</th><th>Subject</th></tr></thead><tbody>${rows}</tbody></table>`
  return frame('Mails', mails.length === 0 ? none : table)
}

/** One mail: its links, its HTML and its text. */
export function mailPage({ id, to, type, subject, text, keptAt }: KeptMail): string {
  const links = linksIn(text).map(
    (link) =>
      markup`<li><a href="${link}" target="_blank" rel="noopener noreferrer">${link}</a>${withoutFrontend(link)}</li>`,
  )
  return frame(
    subject,
    markup`<p><a href="/_dev/mail">All mails</a></p>
<dl><dt>To</dt><dd>${to}</dd><dt>Type</dt><dd>${type}</dd><dt>Time</dt><dd><time>${timeOf(keptAt)}</time></dd></dl>
<h2>Links</h2>${links.length === 0 ? markup`<p>None.</p>` : markup`<ul>${links}</ul>`}
<h2>HTML</h2><iframe src="/_dev/mail/${id}/html" title="HTML of the mail" sandbox="allow-popups"></iframe>
<h2>Text</h2><pre>${text}</pre>`,
  )
}

/** The http(s) addresses of a text, each once. */
function linksIn(text: string): string[] {
  return [...new Set([...text.matchAll(/https?:\/\/[^\s<>"')]+/g)].map(([link]) => link))]
}

/** Routes of the frontend whose work is a GET of the API, for who has no frontend yet. */
const apiRoutes: Readonly<Record<string, string>> = {
  'verify-email': '/auth/email/verify/',
  magiclink: '/auth/magiclink/',
}

function withoutFrontend(link: string): Markup {
  const [, route = '', secret = ''] = /\/auth\/([a-z-]+)\/([0-9A-Za-z]+)$/.exec(link) ?? []
  const api = Object.hasOwn(apiRoutes, route) ? apiRoutes[route] : undefined
  return api === undefined ? markup`` : markup` (<a href="${api}${secret}">the same without a frontend</a>)`
}

const timeOf = (date: Date) => date.toISOString().slice(0, 19).replace('T', ' ')

/** Text that is HTML already; everything else is escaped where it is put in. */
class Markup {
  readonly html: string
  constructor(html: string) {
    this.html = html
  }
}

type Part = string | Markup | readonly Markup[]

function markup(texts: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(String.raw({ raw: texts }, ...parts.map(htmlOf)))
}

function htmlOf(part: Part): string {
  if (typeof part === 'string') return part.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
  return part instanceof Markup ? part.html : part.map(htmlOf).join('')
}

function frame(title: string, content: Markup): string {
  return markup`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · development inbox</title>
<style>${style}</style></head>
<body><h1>${title}</h1>${content}</body></html>`.html
}

const style = new Markup(`
:root { color-scheme: light dark; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: 0.4rem 0.8rem 0.4rem 0; border-bottom: 1px solid #8884; text-align: left; vertical-align: top; }
dt { float: left; width: 4rem; color: gray; }
a, pre, td { overflow-wrap: anywhere; }
iframe { width: 100%; height: 32rem; border: 1px solid #8884; background: white; }
pre { white-space: pre-wrap; }
`)
