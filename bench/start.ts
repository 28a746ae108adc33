import { setTimeout as delay } from 'node:timers/promises'
import { callerOf, expectStatus } from '../scripts/http.ts'
import type { Figure } from './figures.ts'
import { shoot } from './load.ts'
import { residentBytes } from './meter.ts'
import { type Launch, type Server, startServer } from './processes.ts'
import { type Contest, median } from './rounds.ts'

type Started = { readonly answerMs: number; readonly idle: number | undefined; readonly loaded: number | undefined }

const settleMs = 2_000

/** W11: from spawning a process to its first 200, its memory when nothing has happened, and after it was busy. */
export async function measureStart(
  contest: Contest,
  launches: Readonly<Record<'ceiling' | 'daybook', Launch>>,
  times: number,
): Promise<readonly Figure[]> {
  const took: Record<'ceiling' | 'daybook', Started[]> = { ceiling: [], daybook: [] }
  for (let time = 0; time < times; time += 1)
    for (const side of ['ceiling', 'daybook'] as const) took[side].push(await startOnce(contest, launches[side], side))
  const figure = (title: string, unit: string, pick: (started: Started) => number): Figure => ({
    id: 'W11',
    title,
    unit,
    ceiling: median(took.ceiling.map(pick)),
    daybook: median(took.daybook.map(pick)),
  })
  const megabytes = (bytes: number | undefined) => (bytes ?? Number.NaN) / 2 ** 20
  return [
    figure('spawn to first 200', 'ms', ({ answerMs }) => answerMs),
    figure('resident memory after start', 'MB', ({ idle }) => megabytes(idle)),
    figure('resident memory after load', 'MB', ({ loaded }) => megabytes(loaded)),
  ]
}

async function startOnce(contest: Contest, launch: Launch, side: 'ceiling' | 'daybook'): Promise<Started> {
  await using cleanup = new AsyncDisposableStack()
  const spawned = performance.now()
  const server = await startServer(launch, cleanup)
  expectStatus(await callerOf(server.url)('GET', '/health'), 200)
  const answerMs = performance.now() - spawned
  await delay(settleMs)
  const idle = residentBytes(server.pid)
  await keepBusy(contest, server, side)
  return { answerMs, idle, loaded: residentBytes(server.pid) }
}

async function keepBusy({ accounts }: Contest, server: Server, side: 'ceiling' | 'daybook'): Promise<void> {
  const path = side === 'ceiling' ? '/product/nested?count=false' : '/items/product?limit=25&sort=sku&count=false'
  await shoot(server, accounts.admin, { amount: 5_000, connections: 32, status: 200, requests: [{ path }] })
}
