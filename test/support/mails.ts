import type { Mailer } from '../../src/adapters/mailer.ts'
import { sendMailInLane } from '../../src/features/messaging/mail/jobs.ts'
import { openLanes } from '../../src/features/messaging/mail/mail.ts'
import type { MailWrites } from '../../src/features/messaging/mail/queries.ts'

type Attempt = Omit<Parameters<typeof sendMailInLane>[4], 'id' | 'group'>

/** Sends a mail as the worker does, whatever became of others of its sender. */
export const sendMail = (deps: MailWrites, mailer: Mailer, emailLogId: string, attempt: Attempt): Promise<void> =>
  sendMailInLane(
    deps,
    mailer,
    openLanes(() => undefined),
    emailLogId,
    { ...attempt, id: 'test', group: undefined },
  )
