import type { Database } from './pools.ts'
import { databaseIdentitySql, type WalPosition, walEndSql } from './wal.ts'

/** The primary at a moment of `performance.now()`: what had committed before `at` is below `position`. */
export type Sample = {
  readonly at: number
  readonly position: WalPosition
  /** Every transaction before this one had ended. */
  readonly horizon: bigint
  readonly identity: string
}

export type Samples = {
  /** Asks the primary now. */
  take(): Promise<void>
  latest(): Sample | undefined
  /** The newest moment that somebody who has replayed this much shows; undefined when it is too long ago. */
  reached(position: WalPosition): Sample | undefined
}

/** Two minutes at the pace at which they are taken: how long ago a replica's state can be told. */
const mostSamples = 600

export function openSamples(db: Database): Samples {
  const samples: Sample[] = []
  return {
    take: async () => {
      const sample = await sampleOf(db)
      samples.push(sample)
      if (samples.length > mostSamples) samples.shift()
    },
    latest: () => samples.at(-1),
    reached: (position) => samples.findLast((sample) => sample.position <= position),
  }
}

// The statement's snapshot is taken before the end of the log is asked for, so the horizon is none too new.
const text = `select ${walEndSql}::text as position, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
  ${databaseIdentitySql} as identity`

async function sampleOf(db: Database): Promise<Sample> {
  const at = performance.now()
  const [row] = await db.run<{ position: string; horizon: string; identity: string }>(text, [], 'prepared')
  const { position, horizon, identity } = row!
  return { at, position: BigInt(position), horizon: BigInt(horizon), identity }
}
