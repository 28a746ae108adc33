import type { FastifyReply, FastifyRequest } from 'fastify'
import { type TObject, Type } from 'typebox'
import { isLoopback } from '../../../adapters/client-address.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/uuid.ts'
import { hasInbox } from '../mail/mail.ts'
import type { MailLogo } from '../templates/templates.ts'
import { withEmbeddedLogo } from '../templates/templates.ts'
import { listPage, mailPage } from './pages.ts'
import { type KeptMail, keptMail, keptMails } from './queries.ts'

/** The development inbox: mails that nobody sends, on the machine that they would have left. Not there in production. */
export function inboxRoutes(app: App, rt: Reads & Configuration & MailLogo): void {
  if (!hasInbox(rt)) return
  app.addHook('onRequest', async (request) => refuseStrangers(request))
  app.get('/_dev/mail', listRoute, async (_request, reply) => page(reply, listPage(await keptMails(rt.db))))
  app.get('/_dev/mail/:id', mailRoute, async (request, reply) => page(reply, mailPage(await wanted(rt, request))))
  app.get('/_dev/mail/:id/html', htmlRoute, async (request, reply) => {
    const { html } = await wanted(rt, request)
    return secured(reply, mailPolicy).type('text/html; charset=utf-8').send(withEmbeddedLogo(html, rt.mailLogo))
  })
  app.get('/_dev/mail/:id/text', textRoute, async (request, reply) => {
    const { text } = await wanted(rt, request)
    return secured(reply, pagePolicy).type('text/plain; charset=utf-8').send(text)
  })
}

/**
 * Whoever reads these mails owns every account, so they are shown to programs of this machine alone: not through a
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

async function wanted(rt: Reads, request: FastifyRequest): Promise<KeptMail> {
  const { id } = request.params as { id: string }
  const mail = isUuid(id) ? await keptMail(rt.db, id) : undefined
  if (mail === undefined) throw new AppError(404, 'Mail not found')
  return mail
}

const own = "base-uri 'none'; form-action 'none'"
const pagePolicy = `default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; frame-ancestors 'none'; ${own}`
/** What a template's author wrote runs no script and fetches nothing. */
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

const MailParams = Type.Object({ id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') })

const shown = <const Params extends TObject | undefined>(summary: string, params: Params, contentMediaType: string) =>
  route({
    summary,
    tag: 'Development',
    ...(params !== undefined && { params }),
    response: { 200: Text('Hello Ada', { contentMediaType }) },
    sendsText: true,
  })

const listRoute = shown('List the mails of the development inbox', undefined, 'text/html')
const mailRoute = shown('Show a mail of the development inbox', MailParams, 'text/html')
const htmlRoute = shown('Show the HTML of a mail', MailParams, 'text/html')
const textRoute = shown('Show the text of a mail', MailParams, 'text/plain')
