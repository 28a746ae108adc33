import type { PgClient } from '../../../db/pools.ts'
import { onSoleConnection } from '../../../db/sole-connection.ts'
import { holdContentSql, releaseContentSql } from '../../../db/unlogged/holds.ts'
import type { BackupHost } from './capabilities.ts'

/** A backup whose process was killed holds nothing back for longer. Seconds. */
const holdSeconds = 900
const renewMs = 120_000

/** Nothing removes content meanwhile that a row has named: the hold is there before the moment of the backup. */
export async function withContentHeld<T>(host: BackupHost, id: string, work: () => Promise<T>): Promise<T> {
  return onSoleConnection(
    host.config,
    'backup hold',
    async (client) => {
      // A database that is about to be upgraded may have none yet.
      const { rows } = await client.query<{ there: boolean }>(`select to_regclass('"svc_Hold"') is not null as there`)
      return rows[0]!.there ? held(host, client, id, work) : work()
    },
    { writes: true },
  )
}

async function held<T>({ log }: BackupHost, client: PgClient, id: string, work: () => Promise<T>): Promise<T> {
  const hold = () => client.query(holdContentSql, [id, holdSeconds])
  await hold()
  let lost: unknown
  const timer = setInterval(() => {
    hold().catch((error: unknown) => {
      lost = error
      log.warn({ err: error }, 'the removal of content could not be held back any longer')
    })
  }, renewMs)
  try {
    const result = await work()
    if (lost !== undefined) throw lost
    return result
  } finally {
    clearInterval(timer)
    await client
      .query(releaseContentSql, [id])
      .catch((error: unknown) => log.warn({ err: error }, 'a hold could not be released; it ends by itself'))
  }
}
