import { countMails, enterAsUser, register, signIn, verify } from './account.ts'
import { importCountries, makeCollections } from './data.ts'
import { grantEurope, readAsUser } from './reading.ts'
import { compareWithLog, cutFeed, killWeb, receiveChanges } from './realtime.ts'
import { readHistory, stopAll, verifyLog } from './record.ts'
import type { Stage } from './stage.ts'
import type { Step } from './steps.ts'
import { watch } from './watcher.ts'

/**
 * All of Daybook in one story about the countries of the world, told over HTTP, SMTP and a socket. Every step expects
 * something and throws when it does not hold. The processes of the stage run before it and are stopped after it.
 */
export async function playStory(stage: Stage, step: Step): Promise<void> {
  const admin = await step('The administrator signs in', () => signIn(stage))
  await step('Two related collections are made', (see) => makeCollections(admin, see))
  await step('The countries of the world are imported', (see) => importCountries(admin, see))
  const token = await step('A user registers; the mail worker is killed before it sends; its successor does', (see) =>
    register(stage, admin, see),
  )
  await step('The mailed link opens the account, once', (see) => verify(stage, token, see))
  const user = await step('The user signs in and may read nothing', (see) => enterAsUser(stage, see))
  await step("The user's role is granted the countries of Europe", (see) => grantEurope(admin, see))
  await step('Filtered and nested reads show what is granted', (see) => readAsUser(user.call, see))
  const watcher = await step('The user subscribes', () => watch(stage.url, user.token, 'country'))
  try {
    await step('Each change arrives', (see) => receiveChanges(admin, watcher, see))
    await step('The feed is killed; each change arrives', (see) => cutFeed(stage, admin, watcher, see))
    await step('The web process is killed and comes back; each change arrives', (see) =>
      killWeb(stage, admin, watcher, see),
    )
    await step('What arrived is what the log holds, each once', (see) => compareWithLog(stage, watcher, see))
  } finally {
    watcher.close()
  }
  await step('The mail was sent once', (see) => countMails(stage, admin, see))
  await step('The log tells who did what', (see) => readHistory(admin, see))
  await step('The log and the tables agree', (see) => verifyLog(stage, see))
  await step('Every process stops when it is told to', (see) => stopAll(stage, see))
}
