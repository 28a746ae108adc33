import { openMailer } from '../../adapters/mailer.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { sendTestMail } from './test-mail.ts'

/** Less patient than the worker: somebody is waiting. */
const timeouts = { connect: 10_000, greeting: 10_000, silence: 20_000 }

/** Emits: row changes of svc_EmailLog. */
export function mailAdminRoutes(app: App, rt: Runtime): void {
  const mailer = openMailer(timeouts)
  app.addHook('onClose', async () => mailer.close())
  app.post('/settings/test-email', async (request) => {
    const query = request.query as { tenant_id?: unknown }
    await sendTestMail(rt, mailer, actorOf(request), { members: request.body, tenantId: query.tenant_id })
    return { success: true, message: 'Test email sent successfully' }
  })
}
