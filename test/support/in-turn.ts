import pg from 'pg'
import type { Answer, Api } from './api.ts'
import { waitFor } from './wait.ts'

/** A row that requests will ask for. */
export type LockedRow = { readonly table: string; readonly id: string }

/**
 * Sends requests one after the other while another connection has the row locked, and gives their answers. Each of them has
 * come as far as the row by then, and the first gets it first: what it does, the others find done by a request that was not
 * there when they were checked. In which order the others get it is up to PostgreSQL.
 */
export async function inTurn(
  { database, sql }: Pick<Api, 'database' | 'sql'>,
  { table, id }: LockedRow,
  requests: readonly (() => Promise<Answer>)[],
): Promise<Answer[]> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  try {
    await client.query('begin')
    await client.query(`select from "${table}" where id = $1 for update`, [id])
    const answers: Promise<Answer>[] = []
    let waits = 0
    for (const request of requests) {
      const answer = request()
      answers.push(answer)
      let isAnswered = false
      const note = () => {
        isAnswered = true
      }
      answer.then(note, note)
      // One that does not ask for the row is answered meanwhile.
      await waitFor(async () => isAnswered || (await sql(waiting)).length > waits)
      if (!isAnswered) waits += 1
    }
    await client.query('commit')
    return await Promise.all(answers)
  } finally {
    await client.end()
  }
}

const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
