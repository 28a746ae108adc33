import { countMails, enterAsUser, register, signIn, verify } from './account.ts'
import { importCountries, makeCollections } from './data.ts'
import { grantEurope, readAsUser } from './reading.ts'
import { compareWithLog, cutFeed, killWeb, receiveChanges } from './realtime.ts'
import { readHistory, stopAll, verifyLog } from './record.ts'
import type { Stage } from './stage.ts'
import { watch } from './watcher.ts'

/** Runs one step of the story; it has held when `run` resolves. `see` says what was seen. */
export type Step = <T>(title: string, run: (see: See) => Promise<T>) => Promise<T>
export type See = (what: string) => void

/**
 * The whole of Daybook in one story about the countries of the world, told over HTTP, SMTP and a socket. Every step
 * expects something and throws when it does not hold. Assumes the stage's processes run; leaves them stopped.
 */
export async function playStory(stage: Stage, step: Step): Promise<void> {
  const admin = await step('The administrator signs in', () => signIn(stage, stage.administrator))
  await step('Two related collections', (see) => makeCollections(admin, see))
  await step('The countries of the world are imported in one request', (see) => importCountries(admin, see))
  const token = await step(
    'A user registers while the mail worker hangs; it is killed, its successor sends the mail',
    (see) => register(stage, admin, see),
  )
  await step('The mailed link opens the account, once', (see) => verify(stage, token, see))
  const reader = await step('The user signs in and may read nothing', (see) => enterAsUser(stage, see))
  await step("The user's role is granted the countries of Europe", (see) => grantEurope(admin, see))
  await step('Filtered and nested reads show what is granted, and nothing else', (see) => readAsUser(reader.call, see))
  const watcher = await step('A socket of that user receives each change', (see) =>
    watchChanges(stage, admin, reader.token, see),
  )
  try {
    await step('The feed is killed: its replication connection is cut', (see) => cutFeed(stage, admin, watcher, see))
    await step('The web process is killed under load and comes back: the socket resumes', (see) =>
      killWeb(stage, admin, watcher, see),
    )
    await step('Received: each change of the log, once', (see) => compareWithLog(stage, watcher, see))
  } finally {
    watcher.close()
  }
  await step('One mail was sent, and sent once', (see) => countMails(stage, admin, see))
  await step('The log tells who did what', (see) => readHistory(admin, see))
  await step('The log and the tables agree (npm run log:verify)', (see) => verifyLog(stage, see))
  await step('Told to stop, every process finishes and ends with 0', (see) => stopAll(stage, see))
}
