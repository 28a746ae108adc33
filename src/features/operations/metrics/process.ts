import type { Reading } from '../../../adapters/metrics.ts'
import type { Listening } from '../../../db/listener.ts'
import type { PoolStates } from '../../../db/pool-state.ts'
import type { Meters } from './instruments.ts'

/** What each process knows of itself, without asking anybody. */
export function registerProcessGauges(rt: Listening & Meters & PoolStates): void {
  const { metrics } = rt.instruments
  const pools = (name: string, help: string, value: (pool: ReturnType<PoolStates['pools']>[number]) => number) =>
    metrics.gauge({ name, help, labelNames: ['pool'] }, () =>
      rt.pools().map((pool): Reading => ({ labels: { pool: pool.name }, value: value(pool) })),
    )
  pools('daybook_pool_connections_max', 'Most connections of a pool.', ({ max }) => max)
  pools('daybook_pool_connections', 'Open connections of a pool.', ({ open }) => open)
  pools('daybook_pool_idle_connections', 'Connections of a pool that nobody uses.', ({ idle }) => idle)
  pools('daybook_pool_waiting', 'Who waits for a connection of a pool.', ({ waiting }) => waiting)
  metrics.gauge(
    { name: 'daybook_notifications_live', help: '1 while the connection that listens for NOTIFY answers.' },
    () => [{ value: rt.listener.isLive() ? 1 : 0 }],
  )
}
