import type { FastifyReply, FastifyRequest } from 'fastify'
import type { TObject } from 'typebox'
import type { MailAttachment } from '../../../adapters/mailer.ts'
import { isLoopback } from '../../../adapters/network-addresses.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { IdParams, Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'
import { attachment } from '../../files/assets/assets.ts'
import { AttachmentError, attachmentsOf, hasInbox } from '../mail/mail.ts'
import { type LogoReads, withEmbeddedLogo } from '../templates/templates.ts'

/** The development inbox: mails that are kept instead of sent, on this machine. Not there in production. */
export function inboxRoutes(app: App, deps: Reads & Configuration & LogoReads): void {
  if (!hasInbox(deps)) return
  app.addHook('onRequest', async (request) => refuseStrangers(request))
  app.get('/_dev/mail', listRoute, async (_request, reply) => page(reply, listPage(await keptMails(deps.db))))
  app.get('/_dev/mail/:id', mailRoute, async (request, reply) => page(reply, mailPage(await wanted(deps, request))))
  app.get('/_dev/mail/:id/html', htmlRoute, async (request, reply) => {
    const { html, tenantId } = await wanted(deps, request)
    const page = await withEmbeddedLogo(deps, html, tenantId ?? undefined)
    return secured(reply, mailPolicy).type('text/html; charset=utf-8').send(page)
  })
  app.get('/_dev/mail/:id/text', textRoute, async (request, reply) => {
    const { text } = await wanted(deps, request)
    return secured(reply, pagePolicy).type('text/plain; charset=utf-8').send(text)
  })
  app.get('/_dev/mail/:id/attachments/:n', attachmentRoute, async (request, reply) => {
    const { n } = request.params as { n: string }
    const { filename, content } = await attachmentOf(deps, await wanted(deps, request), n)
    const bytes = secured(reply, mailPolicy).header('content-disposition', attachment(String(filename)))
    return bytes.type('application/octet-stream').send(content)
  })
}

/**
 * A reader of these mails owns every account, so they are shown to programs of this machine alone: not through a
 * proxy, and not to a page whose own name leads here.
 */
function refuseStrangers(request: FastifyRequest): void {
  const { headers, socket, method, url } = request
  const isProxied = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'via'].some(
    (name) => headers[name] !== undefined,
  )
  const host = (headers.host ?? '').replace(/:\d+$/, '').toLowerCase()
  const isNamedHere = host === 'localhost' || isLoopback(host)
  if (isProxied || !isNamedHere || !isLoopback(socket.remoteAddress ?? ''))
    throw new AppError(404, `Route ${method} ${url.split('?', 1)[0]} not found`)
}

async function wanted({ db }: Reads, request: FastifyRequest): Promise<KeptMail> {
  const { id } = request.params as { id: string }
  const mail = isUuid(id) ? await keptMail(db, id) : undefined
  if (mail === undefined) throw new AppError(404, 'Mail not found')
  return mail
}

/** One of the files that went with a mail, as it is now. */
async function attachmentOf(deps: LogoReads, { attachments, tenantId }: KeptMail, n: string): Promise<MailAttachment> {
  const one = /^\d{1,3}$/.test(n) ? attachments[Number(n)] : undefined
  if (one === undefined) throw new AppError(404, 'Attachment not found')
  try {
    const [found] = await attachmentsOf(deps, [one], tenantId)
    return found!
  } catch (error) {
    throw error instanceof AttachmentError ? new AppError(404, `Attachment not found: ${error.message}`) : error
  }
}

const own = "base-uri 'none'; form-action 'none'"
const pagePolicy = `default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; frame-ancestors 'none'; ${own}`
/** HTML from a template's author runs no script and fetches nothing. */
const mailPolicy = `default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox allow-popups; ${own}`

function page(reply: FastifyReply, html: string): FastifyReply {
  return secured(reply, pagePolicy).type('text/html; charset=utf-8').send(html)
}

function secured(reply: FastifyReply, policy: string): FastifyReply {
  return reply.headers({
    'content-security-policy': policy,
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  })
}

const shown = <const Params extends TObject | undefined>(summary: string, params: Params, contentMediaType: string) =>
  route({
    summary,
    tag: 'Development',
    scope: 'none',
    ...(params !== undefined && { params }),
    response: { 200: Text('Hello Ada', { contentMediaType }) },
    sendsText: true,
  })

const listRoute = shown('List the mails of the development inbox', undefined, 'text/html')
const mailRoute = shown('Show a mail of the development inbox', IdParams, 'text/html')
const htmlRoute = shown('Show the HTML of a mail', IdParams, 'text/html')
const textRoute = shown('Show the text of a mail', IdParams, 'text/plain')
const attachmentRoute = shown(
  'Save a file that went with a mail',
  Type.Object({ ...IdParams.properties, n: Text('0', { description: 'Which one, from 0.' }) }),
  'application/octet-stream',
)

/** A mail of the development inbox, as it would have been sent. */
type KeptMail = {
  readonly id: string
  readonly type: string
  readonly to: string
  readonly subject: string
  readonly html: string
  readonly text: string
  readonly keptAt: Date
  readonly tenantId: string | null
  readonly attachments: readonly { readonly file: string; readonly filename: string }[]
}

type ListedMail = Omit<KeptMail, 'html' | 'text' | 'attachments'>

const columns = sql`
  m.id, m."templateName" as type, m.email as "to", d.subject, m."tenant_Id" as "tenantId", extract(epoch from d."keptAt") * 1000 as "keptAt"`
const kept = sql`"svc_DevelopmentMail" d join "svc_EmailLog" m on m.id = d."emailLogId"`

/** Under the names that they were sent with; the one of a file that is gone is lost. */
const attachments = sql`coalesce((
  select json_agg(json_build_object('file', a->>'file', 'filename',
    coalesce(a->>'filename', f."originalFilename", f.title, f.filename, 'a file that is gone')) order by n)
  from jsonb_array_elements(m.context::jsonb->'attachments') with ordinality named (a, n)
  left join "svc_File" f on f.id = (a->>'file')::uuid), '[]')`

/** The newest first, at most a hundred. */
async function keptMails(db: Reader): Promise<readonly ListedMail[]> {
  const rows = await db.any<ListedMail>(sql`select ${columns} from ${kept} order by d."keptAt" desc limit 100`)
  return rows.map(dated)
}

async function keptMail(db: Reader, id: string): Promise<KeptMail | undefined> {
  const row = await db.maybeOne<KeptMail>(
    sql`select ${columns}, d.html, d.text, ${attachments} as attachments from ${kept} where m.id = ${id}::uuid`,
  )
  return row && dated(row)
}

function dated<Row extends { readonly keptAt: unknown }>(row: Row): Row {
  return { ...row, keptAt: new Date(Number(row.keptAt)) }
}

/** All mails, newest first. */
function listPage(mails: readonly ListedMail[]): string {
  const rows = mails.map(
    ({ id, keptAt, to, type, subject }) =>
      markup`<tr><td><time>${timeOf(keptAt)}</time></td><td>${to}</td><td>${type}</td><td><a href="/_dev/mail/${id}">${subject}</a></td></tr>`,
  )
  const none = markup`<p>No mail yet. While no sender is configured, the mail worker shows its mails here.</p>`
  const table = markup`<table><thead><tr><th>Time (UTC)</th><th>To</th><th>Type</th><th>Subject</th></tr></thead><tbody>${rows}</tbody></table>`
  return frame('Mails', mails.length === 0 ? none : table)
}

/** One mail: its links, its attachments, its HTML and its text. */
function mailPage({ id, to, type, subject, text, keptAt, attachments }: KeptMail): string {
  const links = linksIn(text).map(
    (link) =>
      markup`<li><a href="${link}" target="_blank" rel="noopener noreferrer">${link}</a>${withoutFrontend(link)}</li>`,
  )
  const files = attachments.map(
    ({ filename }, n) => markup`<li><a href="/_dev/mail/${id}/attachments/${String(n)}">${filename}</a></li>`,
  )
  return frame(
    subject,
    markup`<p><a href="/_dev/mail">All mails</a></p>
<dl><dt>To</dt><dd>${to}</dd><dt>Type</dt><dd>${type}</dd><dt>Time</dt><dd><time>${timeOf(keptAt)}</time></dd></dl>
<h2>Links</h2>${links.length === 0 ? markup`<p>None.</p>` : markup`<ul>${links}</ul>`}
${files.length === 0 ? markup`` : markup`<h2>Attachments</h2><ul>${files}</ul>`}
<h2>HTML</h2><iframe src="/_dev/mail/${id}/html" title="HTML of the mail" sandbox="allow-popups"></iframe>
<h2>Text</h2><pre>${text}</pre>`,
  )
}

/** The http(s) addresses of a text, each once. */
function linksIn(text: string): string[] {
  return [...new Set([...text.matchAll(/https?:\/\/[^\s<>"')]+/g)].map(([link]) => link))]
}

/** Routes of the frontend whose work is a GET of the API, for installations without a frontend. */
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

type MarkupPart = string | Markup | readonly Markup[]

function markup(texts: TemplateStringsArray, ...parts: readonly MarkupPart[]): Markup {
  return new Markup(String.raw({ raw: texts }, ...parts.map(htmlOf)))
}

function htmlOf(part: MarkupPart): string {
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
