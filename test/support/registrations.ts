import type { Answer, Cluster, Web } from './cluster.ts'

/** Variables with which a registration writes to its user, so that it has a mail and a job. */
export const verification = { REQUIRE_EMAIL_VERIFICATION: 'true', AUTH_APP_URL: 'https://app.example' }

export function register(web: Web, email: string): Promise<Answer> {
  const body = { email, password: 'long enough', firstName: 'K', lastName: 'K' }
  return web.call('POST', '/auth/register', body, null)
}

/** What registrations have left, by e-mail: their users, both events, their mails and the jobs of these. */
export async function registrationTraces({ sql }: Pick<Cluster, 'sql'>) {
  const keys = async (text: string) => (await sql(text)).map(({ key }) => key as string)
  const mails = `select email as key from "svc_EmailLog"`
  return {
    user: await keys(`select email as key from "svc_User" where email <> 'admin@example.com'`),
    event: await keys(
      `select changes->'after'->>'email' as key from "svc_AuditLog" where entity = 'svc_User' and action = 'create'
       and changes->'after'->>'email' <> 'admin@example.com'`,
    ),
    registered: await keys(
      `select email as key from "svc_AuditLog" l join "svc_User" u on u.id::text = l."entityId"
       where l.type = 'auth' and l.action = 'register'`,
    ),
    mail: await keys(mails),
    job: await keys(`${mails} m join pgboss.job j on j.name = 'mail' and j.data->>'emailLogId' = m.id::text`),
  }
}
