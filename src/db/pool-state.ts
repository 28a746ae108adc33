import type pg from 'pg'

/** Connections of a pool, and who waits for one. */
export type PoolState = {
  readonly name: string
  readonly max: number
  readonly open: number
  readonly idle: number
  readonly waiting: number
}

/** How busy every pool is, the writing ones too. */
export type PoolStates = { readonly pools: () => readonly PoolState[] }

export function stateOf(name: string, { options, totalCount, idleCount, waitingCount }: pg.Pool): PoolState {
  return { name, max: options.max, open: totalCount, idle: idleCount, waiting: waitingCount }
}
