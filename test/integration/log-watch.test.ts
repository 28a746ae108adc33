import { expect, it, onTestFinished } from 'vitest'
import { openLogWatch } from '../../src/cache/log-watch.ts'
import { startApi } from '../support/api.ts'
import { connect } from '../support/log.ts'
import { waitFor } from '../support/wait.ts'

it('no look that began before a write is recent after it, also while the next one is under way', async () => {
  const api = await startApi()
  const watch = openLogWatch({ db: api.runtime.db, reachBackSeconds: 0 })
  const before = await watch.look(0)
  watch.written()
  const other = await connect(api.database.url)
  onTestFinished(() => other.end())
  await other.query('begin')
  await other.query('lock table "svc_AuditLog" in access exclusive mode')
  const first = watch.look(60_000)
  await waitFor(async () => {
    const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    return (await other.query(waiting)).rowCount === 1
  })
  const second = watch.look(60_000)
  let isAnswered = false
  void second.then(() => {
    isAnswered = true
  })
  // An answer that needs no database comes before a round trip to it ends.
  await other.query('select')
  expect(isAnswered).toBe(false)
  await other.query('rollback')
  const after = await Promise.all([first, second])
  expect(after.map(({ number }) => number > before.number)).toEqual([true, true])
})
