import { setTimeout as delay } from 'node:timers/promises'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { type Ledger, logFaults, openLedger, seededRandom } from '../support/ledger.ts'
import { createDatabase } from '../support/postgres.ts'
import { register, registrationTraces, verification } from '../support/registrations.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'
import { settled } from './settled.ts'

export type Size = { readonly kills: number }

const writers = 6

/**
 * F-01: web processes are killed while people register. The user, the events of it, the mail and its job exist together
 * or not at all, and each that was acknowledged is there.
 */
export async function runF01(seed: number, { kills }: Size): Promise<Result> {
  const random = seededRandom('F-01', seed)
  const database = await createDatabase()
  const cluster = await startCluster({ database, web: 2, env: verification })
  const ledger = openLedger()
  const stop = new AbortController()
  const writing = Promise.all(
    Array.from({ length: writers }, (_, writer) => registerOften(cluster, ledger, writer, stop.signal)),
  )
  for (let kill = 0; kill < kills; kill += 1) {
    const limit = ledger.begun() + 1 + Math.floor(random() * 15)
    await waitFor(() => ledger.begun() >= limit, { what: 'more registrations' })
    await delay(random() * 50)
    const victim = cluster.web[Math.floor(random() * cluster.web.length)]!
    await victim.kill('SIGKILL')
    await victim.restart()
  }
  stop.abort()
  await writing
  await settled(database.url)
  const faults = [...ledger.faults(await registrationTraces(cluster)), ...(await withClient(database.url, logFaults))]
  await Promise.all(cluster.web.map((web) => web.kill()))
  return {
    faults,
    figures: {
      kills,
      acknowledged: ledger.count('acknowledged'),
      refused: ledger.count('refused'),
      unknown: ledger.count('unknown'),
    },
  }
}

/** Goes to the other process when one does not answer, as behind a load balancer. */
async function registerOften(cluster: Cluster, ledger: Ledger, writer: number, signal: AbortSignal): Promise<void> {
  let at = writer
  for (let i = 0; !signal.aborted; i += 1) {
    const email = `w${writer}-${i}@mail.example`
    const outcome = await ledger.write(email, () => register(cluster.web[at % cluster.web.length]!, email))
    if (outcome !== 'unknown') continue
    at += 1
    await delay(20)
  }
}
