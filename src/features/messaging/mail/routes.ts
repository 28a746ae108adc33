import { Type } from 'typebox'
import { openMailer } from '../../../adapters/mailer.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Text } from '../../../http/shapes.ts'
import { TenantQuery } from '../../settings/settings.ts'
import type { MailWrites } from './capabilities.ts'
import { sendTestMail } from './test-mail.ts'

/** Less patient than the worker: somebody is waiting. */
const timeouts = { connect: 10_000, greeting: 10_000, silence: 20_000 }

/** Emits: row changes of svc_EmailLog. */
export function mailAdminRoutes(app: App, rt: MailWrites): void {
  const mailer = openMailer(timeouts)
  app.addHook('onClose', async () => mailer.close())
  app.post('/settings/test-email', testRoute, async (request) => {
    const { to, email } = request.body
    await sendTestMail(rt, mailer, actorOf(request), { to: to ?? email, tenantId: request.query.tenant_id })
    return { success: true, message: 'Test email sent successfully' }
  })
}

const recipient = (example: string) =>
  Type.Optional(Type.String({ examples: [example], refusal: 'Invalid email address' }))

const testRoute = route({
  summary: 'Send a test mail at once',
  description: 'The answer says what became of it; svc_EmailLog has it like any other.',
  tag: 'Settings',
  query: TenantQuery,
  body: Type.Object({
    to: recipient('ada@example.com'),
    email: recipient('ada@example.com'),
  }),
  response: { 200: Type.Object({ success: Type.Boolean(), message: Text('Test email sent successfully') }) },
  readElsewhere: 'query',
})
