import type { Call } from './api.ts'

export type Change = { collection: string; action: string; id: any; data?: any; timestamp: string; position: string }

/** One page of `GET /changes`. */
export const pull = async (call: Call, parameters: Record<string, string>) =>
  call('GET', `/changes?${new URLSearchParams(parameters)}`)

/** All pages until there are no more. */
export async function pullAll(call: Call, since: string, more: Record<string, string> = {}) {
  const data: Change[] = []
  const resync = new Set<string>()
  for (let cursor = since, pages = 1; ; pages += 1) {
    const { status, body, text } = await pull(call, { since: cursor, ...more })
    if (status !== 200) throw new Error(text)
    data.push(...body.data)
    for (const name of body.resync) resync.add(name)
    cursor = body.cursor
    if (!body.hasMore) return { data, cursor, pages, resync: [...resync] }
  }
}
