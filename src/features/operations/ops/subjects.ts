import { canonicalEmail } from '../../../adapters/email-address.ts'
import type { Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { QueueName } from '../../../events/jobs.ts'
import { isUuid } from '../../../language/uuid.ts'
import { isObject } from '../../../query/guards.ts'
import { cancelMail, mailStatus, requeueMail } from '../../messaging/mail/mail.ts'

/** The row that a job is about, which has a state of its own and follows what happens to the job. */
type Subject = {
  /** Makes the row ready for another job, changed by the request's body; throws where there is nothing to do again. */
  redrive(tx: Tx, data: Readonly<Record<string, unknown>>, body: unknown): Promise<void>
  cancel(tx: Tx, data: Readonly<Record<string, unknown>>): Promise<void>
}

const mail: Subject = {
  async redrive(tx, { emailLogId }, body) {
    const to = recipientIn(body)
    const id = String(emailLogId)
    if (!isUuid(id)) throw errors.conflict('The job names no mail')
    if (await requeueMail(tx, id, to)) return
    throw errors.conflict(
      `The mail is ${(await mailStatus(tx, id)) ?? 'deleted'}; only one that has failed is sent again`,
    )
  },
  async cancel(tx, { emailLogId }) {
    if (isUuid(String(emailLogId))) await cancelMail(tx, String(emailLogId))
  },
}

const withoutRow: Subject = {
  redrive: async (_tx, _data, body) => void membersOf(body, []),
  cancel: async () => undefined,
}

const subjects: Partial<Readonly<Record<QueueName, Subject>>> = { mail }

export function subjectOf(queue: QueueName): Subject {
  return subjects[queue] ?? withoutRow
}

/** `{ to }`: the address, corrected. */
function recipientIn(body: unknown): string | undefined {
  const { to } = membersOf(body, ['to'])
  if (to === undefined) return undefined
  const address = typeof to === 'string' ? canonicalEmail(to) : undefined
  if (address === undefined) throw new AppError(400, 'Invalid email address')
  return address
}

/** The members of a body; 400 for one that is not known. */
export function membersOf(body: unknown, known: readonly string[]): Readonly<Record<string, unknown>> {
  if (body === undefined || body === null) return {}
  const unknown = isObject(body) ? Object.keys(body).filter((name) => !known.includes(name)) : ['the body']
  if (unknown.length > 0) throw errors.badBody(`Unknown: ${unknown.map((name) => name.slice(0, 64)).join(', ')}`)
  return body as Readonly<Record<string, unknown>>
}
