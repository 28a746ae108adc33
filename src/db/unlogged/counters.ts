import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Counters of the rate limits, each the number of something in a window that begins with its first. */

export type Addition = {
  readonly key: string
  readonly add: number
  /** The count that is known already, wherever it was counted. */
  readonly atLeast: number
  /** Until the window's end, where one has to begin. */
  readonly windowMs: number
}

export type Count = { readonly key: string; readonly count: number; readonly remainingMs: number }

/**
 * Adds to counters and gives what they have come to: of any number at the same time no two see the same count. Rows are
 * taken in the order of their keys, so statements that share some wait for each other and never in a circle.
 */
export async function addToCounters(deps: UnloggedWrites, additions: readonly Addition[]): Promise<Count[]> {
  return run<Count>(
    deps,
    `insert into "svc_RateLimit" as c (key, count, added, "endsAt")
     select key, floor + added, added, now() + ms * interval '1 ms'
     from unnest($1::text[], $2::int[], $3::int[], $4::float8[]) a (key, added, floor, ms) order by key
     on conflict (key) do update set
       count = case when c."endsAt" > now() then greatest(c.count + excluded.added, excluded.count)
                    else excluded.count end,
       added = excluded.added,
       "endsAt" = case when c."endsAt" > now() then c."endsAt" else excluded."endsAt" end
     returning key, count::float8 as count, (extract(epoch from "endsAt" - now()) * 1000)::float8 as "remainingMs"`,
    [
      additions.map(({ key }) => key),
      additions.map(({ add }) => add),
      additions.map(({ atLeast }) => atLeast),
      additions.map(({ windowMs }) => windowMs),
    ],
  )
}

/** Removes some of the counters whose window is over; those that somebody is just counting on stay. */
export async function deleteEndedCounters(deps: UnloggedWrites, atMost: number): Promise<void> {
  await run(
    deps,
    `delete from "svc_RateLimit" where key in (
       select key from "svc_RateLimit" where "endsAt" <= now() order by "endsAt" limit $1 for update skip locked)`,
    [atMost],
  )
}
