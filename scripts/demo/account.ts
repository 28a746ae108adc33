import assert from 'node:assert/strict'
import { type Call, callerOf, expectStatus } from '../http.ts'
import { type List, list, type Refusal } from './lists.ts'
import type { Stage } from './stage.ts'
import type { See } from './steps.ts'
import { until } from './wait.ts'

export type Account = { readonly call: Call; readonly token: string }

const user = { email: 'ada@reader.example', password: 'a long enough password', firstName: 'Ada', lastName: 'Reader' }

export async function signIn({ url, administrator }: Stage): Promise<Call> {
  return (await openSession(url, administrator.email, administrator.password)).call
}

async function openSession(url: string, email: string, password: string): Promise<Account> {
  const answer = await callerOf(url)<{ token: string }>('POST', '/auth/login', { email, password })
  const { token } = expectStatus(answer, 200)
  return { token, call: callerOf(url, token) }
}

/** Resolves with the token of the mailed link. */
export async function register({ url, mailWorker, smtp }: Stage, admin: Call, see: See): Promise<string> {
  mailWorker.freeze()
  const answer = await callerOf(url)<{ message: string; token?: string }>('POST', '/auth/register', user)
  const { message, token } = expectStatus(answer, 200)
  assert.equal(token, undefined)
  see(message)
  await mailWorker.kill()
  see(`kill -9 mail worker; the mail is ${await mailStatus(admin)}, received by the SMTP server: ${smtp.mails.length}`)
  assert.equal(await mailStatus(admin), 'queued')
  assert.deepEqual(smtp.mails, [])
  await mailWorker.start()
  const mail = await until('the mail', () => smtp.mails[0])
  await until('the mail to be recorded as sent', async () => (await mailStatus(admin)) === 'sent')
  assert.equal(mail.to?.[0]?.address, user.email)
  see(`a new worker; the mail is sent: "${mail.subject}" to ${mail.to?.[0]?.address}`)
  const link = /https:\/\/app\.example\/auth\/verify-email\/([0-9a-f]{64})/.exec(mail.text ?? '')
  assert.ok(link?.[1], `no link in the mail: ${mail.text}`)
  return link[1]
}

type MailRow = { status: string; attempts: number; messageId: string }

async function mailRows(admin: Call): Promise<readonly MailRow[]> {
  const path = list('svc_EmailLog', {
    filter: { email: user.email },
    fields: ['status', 'attempts', 'messageId'],
    limit: -1,
  })
  return expectStatus(await admin<List<MailRow>>('GET', path), 200).data
}

async function mailStatus(admin: Call): Promise<string | undefined> {
  return (await mailRows(admin))[0]?.status
}

export async function verify({ url }: Stage, token: string, see: See): Promise<void> {
  const anonymous = callerOf(url)
  const early = await anonymous<{ message: string }>('POST', '/auth/login', user)
  see(`before: 403 ${expectStatus(early, 403).message}`)
  const open = () => anonymous<{ message: string }>('GET', `/auth/email/verify/${token}`)
  see(`the link: 200 ${expectStatus(await open(), 200).message}`)
  see(`again: 400 ${expectStatus(await open(), 400).message}`)
}

export async function enterAsUser({ url }: Stage, see: See): Promise<Account> {
  const account = await openSession(url, user.email, user.password)
  const { error } = expectStatus(await account.call<Refusal>('GET', '/items/country'), 403)
  see(`403 ${error.message}`)
  return account
}

export async function countMails({ smtp }: Stage, admin: Call, see: See): Promise<void> {
  assert.equal(smtp.mails.length, 1)
  const [row, ...more] = await mailRows(admin)
  assert.deepEqual(more, [])
  assert.deepEqual({ status: row?.status, attempts: row?.attempts }, { status: 'sent', attempts: 1 })
  assert.equal(row?.messageId, smtp.mails[0]?.messageId)
  see(`svc_EmailLog: ${JSON.stringify(row)}`)
}
