import type { Side } from './cases.ts'
import type { Figure } from './figures.ts'
import { type Mixed, runMixed } from './mixed.ts'
import { type Contest, median } from './rounds.ts'

/** Reads with 5 % writes on each side in turn, and whether an answer was older than a write acknowledged before it. */
export async function measureMixed(contest: Contest): Promise<readonly Figure[]> {
  const sides = Object.keys(contest.servers) as Side[]
  const took = new Map<Side, Mixed[]>(sides.map((side) => [side, []]))
  const run = (side: Side, amount: number) =>
    runMixed(contest.servers[side]!, contest.accounts.admin, side === 'ceiling' ? 'ceiling' : 'daybook', amount)
  const amounts = new Map<Side, number>()
  for (const side of sides) {
    const { perSecond } = await run(side, 200)
    amounts.set(side, Math.max(200, Math.round(perSecond * contest.seconds)))
  }
  for (let round = 0; round < contest.rounds; round += 1)
    for (const side of sides) took.get(side)!.push(await run(side, amounts.get(side)!))
  return [rates(took), stale(took), errors(took)]
}

type Took = ReadonlyMap<Side, readonly Mixed[]>

function rates(took: Took): Figure {
  const values = [...took].map(([side, rounds]) => [side, median(rounds.map(({ perSecond }) => perSecond))])
  return { id: 'P9', title: '20 repeated lists with 5 % writes', unit: 'requests/s', ...Object.fromEntries(values) }
}

function stale(took: Took): Figure {
  const values = [...took].map(([side, rounds]) => [side, rounds.reduce((sum, { stale }) => sum + stale, 0)])
  const answers = [...took.values()].flat().reduce((sum, { reads }) => sum + reads, 0)
  const title = `the same: answers older than an acknowledged write, of ${answers.toLocaleString('en')}`
  return { id: 'P9', title, unit: 'answers', ...Object.fromEntries(values) }
}

function errors(took: Took): Figure {
  const values = [...took].map(([side, rounds]) => [side, rounds.reduce((sum, { errors }) => sum + errors, 0)])
  return { id: 'P9', title: 'the same: errors', unit: 'answers', ...Object.fromEntries(values) }
}
