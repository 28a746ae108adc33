import { canonicalEmail } from '../../../adapters/email-address.ts'
import { type Mailer, mailProblems, openMailer } from '../../../adapters/mailer.ts'
import { Type } from '../../../adapters/typebox.ts'
import { AppError } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Text } from '../../../http/shapes.ts'
import { settingsNotFound, TenantQuery, tenantOf } from '../../settings/settings.ts'
import { attemptMail } from './jobs.ts'
import { queueMail } from './mail.ts'
import { type MailWrites, tenantOf as tenantNamed } from './queries.ts'

/** Shorter than those of the worker: a user is waiting. */
const timeouts = { connect: 10_000, greeting: 10_000, silence: 20_000 }

/** Emits: row changes of svc_EmailLog. */
export function mailAdminRoutes(app: App, deps: MailWrites): void {
  const mailer = openMailer(timeouts)
  app.addHook('onClose', async () => mailer.close())
  app.post('/settings/test-email', testRoute, async (request) => {
    const { to, email } = request.body
    await sendTestMail(deps, mailer, actorOf(request), { to: to ?? email, tenantId: tenantOf(request.query) })
    return { success: true, message: 'Test email sent successfully' }
  })
}

const recipient = (example: string) =>
  Type.Optional(Type.String({ examples: [example], refusal: 'Invalid email address' }))

const testRoute = route({
  summary: 'Send a test mail at once',
  scope: 'admin',
  description: 'The answer says what became of it; svc_EmailLog has it like any other.',
  tag: 'Settings',
  query: TenantQuery,
  body: Type.Object({ to: recipient('ada@example.com'), email: recipient('ada@example.com') }, { lenient: true }),
  response: { 200: Type.Object({ success: Type.Boolean(), message: Text('Test email sent successfully') }) },
})

type TestMail = {
  readonly to: string | undefined
  /** The tenant whose settings are tried; the installation's without one. */
  readonly tenantId: string | undefined
}

/** Long enough for a slow server, short enough for the person who waits. Milliseconds. */
const longest = 30_000

/**
 * Sends one mail at once, past the queue, so that the caller hears what became of it.
 * It is in svc_EmailLog like any other; there is one attempt.
 *
 * @throws {AppError} 400 without one plain address; 404 for an unknown tenant; 500 `Failed to send test email` with a
 *   reason that repeats nothing of what the server said
 */
async function sendTestMail(deps: MailWrites, mailer: Mailer, actor: Actor, wanted: TestMail): Promise<void> {
  const to = recipientOf(wanted.to)
  const { tenantId } = wanted
  if (tenantId !== undefined && (await tenantNamed(deps.db, tenantId)) === undefined) throw settingsNotFound()
  const id = await commit(deps, actor, async (tx) => {
    const { emailLogId } = await queueMail(tx, { type: 'test', to, context: {}, ...(tenantId && { tenantId }) })
    return { result: emailLogId }
  })
  const attempt = { retryCount: 0, retryLimit: 0, signal: AbortSignal.timeout(longest) }
  const delivery = await attemptMail(deps, mailer, id, attempt)
  if (delivery === undefined || delivery === 'busy') throw failed('The mail was given up')
  if (delivery.outcome !== 'accepted') throw failed(mailProblems[delivery.problem])
}

function recipientOf(typed: string | undefined): string {
  if (typed === undefined || typed === '') throw new AppError(400, 'Email address is required')
  const address = canonicalEmail(typed)
  if (address === undefined) throw new AppError(400, 'Invalid email address')
  return address
}

const failed = (reason: string) => new AppError(500, 'Failed to send test email', { details: { reason } })
