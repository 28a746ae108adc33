import { setTimeout as delay } from 'node:timers/promises'
import type { Answer, Cluster } from '../support/cluster.ts'
import type { Ledger, Outcome } from '../support/ledger.ts'

type Options = {
  readonly cluster: Cluster
  readonly ledger: Ledger
  readonly writer: number
  readonly writes: number
  readonly random: () => number
}

const most = 25

/**
 * Makes, changes and deletes rows of its own, one request after the other; goes to the next web process when one does
 * not answer, as behind a load balancer. A write's key is its mark; that of a deletion names the row.
 */
export async function writeRows({ cluster, ledger, writer, writes, random }: Options): Promise<void> {
  const ids: string[] = []
  let at = writer
  const send = async (key: string, method: string, path: string, body?: object): Promise<[Outcome, Answer?]> => {
    let answer: Answer | undefined
    const outcome = await ledger.write(key, async () => {
      answer = await cluster.web[at % cluster.web.length]!.call(method, path, body)
      return answer
    })
    if (outcome === 'unknown' || answer?.status === 503) {
      at += 1
      await delay(20)
    }
    return [outcome, answer]
  }
  for (let i = 0; i < writes; i += 1) {
    const mark = `${writer}-${i}`
    const kind = random()
    const n = Math.floor(random() * ids.length)
    if (ids.length === 0 || (kind < 0.2 && ids.length < most)) {
      const [outcome, answer] = await send(mark, 'POST', '/items/storm', { mark, lane: i % 2 })
      if (outcome === 'acknowledged') ids.push(answer!.body.data.id)
    } else if (kind < 0.9) await send(mark, 'PATCH', `/items/storm/${ids[n]}`, { mark })
    else {
      const [id] = ids.splice(n, 1)
      await send(`gone ${id}`, 'DELETE', `/items/storm/${id}`)
    }
  }
}
