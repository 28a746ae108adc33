import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Claims of mails: who is sending one, and that it lives. */

/** Begins the time of a claim anew; false when it was lost. */
export async function renewMailClaim(deps: UnloggedWrites, emailLogId: string, claimToken: string): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_EmailLog" set "claimedAt" = now() where id = $1 and "claimToken" = $2 returning 1`,
    [emailLogId, claimToken],
  )
  return rows.length === 1
}

// The development inbox: mails that nobody sends, with the secrets in them. It has no rows in production.

type DevelopmentMail = {
  readonly emailLogId: string
  readonly subject: string
  readonly html: string
  readonly text: string
}

const developmentMailsKept = 500

/** Keeps a mail as it would have been sent, once, and forgets the oldest of very many. */
export async function keepDevelopmentMail(deps: UnloggedWrites, mail: DevelopmentMail): Promise<void> {
  await run(
    deps,
    `with old as (
       delete from "svc_DevelopmentMail"
       where "keptAt" < (select "keptAt" from "svc_DevelopmentMail" order by "keptAt" desc offset $5 limit 1))
     insert into "svc_DevelopmentMail" ("emailLogId", subject, html, text) values ($1, $2, $3, $4)
     on conflict ("emailLogId") do update
       set subject = excluded.subject, html = excluded.html, text = excluded.text, "keptAt" = now()`,
    [mail.emailLogId, mail.subject, mail.html, mail.text, developmentMailsKept],
  )
}
