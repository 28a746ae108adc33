import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createClient } from '../../clients/client.ts'
import { openHttp } from '../../clients/http.ts'
import { type KeptRows, openLive } from '../../clients/live.ts'
import { createRealtime } from '../../clients/realtime.ts'
import { type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let url: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  url = await api.app.listen({ host: '127.0.0.1', port: 0 })
  await make('note', { text: { type: 'String' }, points: { type: 'Integer' } })
})

async function make(collectionName: string, fields: object): Promise<void> {
  const { status, text } = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
  expect(status, text).toBe(201)
}

/** A reader of notes, and what ends its right. */
async function reader() {
  const user = await api.user([{ collection: 'note', action: 'read' }])
  const forbid = async () => {
    const [row] = await api.sql(`select id from "svc_Permission" where "role_Id" = $1`, [user.roleId])
    expect((await api.admin('DELETE', `/permissions/${row.id}`)).status).toBe(204)
  }
  return { ...user, forbid }
}

/** Live rows of a reader that are kept, as a browser keeps them. */
function keptLive(token: string, kept: Map<string, KeptRows>) {
  const realtime = createRealtime({ url, token })
  const http = openHttp({
    url,
    fetch,
    authorize: async () => ({ authorization: `Bearer ${token}` }),
    onUnauthorized: () => false,
    withCookies: false,
    attempts: 1,
  })
  const live = openLive(
    { collection: 'note' },
    {
      http,
      connect: () => realtime,
      store: {
        load: async (name) => kept.get(name),
        save: async (name, rows) => void kept.set(name, rows),
        remove: async (name) => void kept.delete(name),
      },
      owner: async () => 'the reader',
      onClose: () => undefined,
    },
  )
  onTestFinished(() => realtime.close())
  return live
}

describe('what may not be read any more', () => {
  it('goes from the view and from the store, now and at the next visit', async () => {
    await api.admin('POST', '/items/note', { text: 'secret' })
    const { token, forbid } = await reader()
    const kept = new Map<string, KeptRows>()
    const live = keptLive(token, kept)
    await waitFor(() => (kept.size === 1 ? true : undefined))
    const before = new Map(kept)
    expect(live.view.rows).toMatchObject([{ text: 'secret' }])
    await forbid()
    await waitFor(() => (live.view.status === 'ended' ? true : undefined))
    expect(live.view).toMatchObject({ rows: [], error: { final: true } })
    expect(kept.size).toBe(0)
    const seen: number[] = []
    const next = keptLive(token, before)
    next.subscribe(() => seen.push(next.view.rows.length))
    await waitFor(() => (next.view.status === 'ended' ? true : undefined))
    expect(seen).toEqual([1, 0])
    expect(before.size).toBe(0)
  })

  it('goes from a live report', async () => {
    const { token, forbid } = await reader()
    const client = createClient({ url, auth: { token } })
    onTestFinished(() => client.close())
    const report = client.liveReport({ collection: 'note', aggregate: { n: { function: 'count', field: '*' } } })
    await waitFor(() => (report.view.status === 'live' ? true : undefined))
    await forbid()
    await waitFor(() => (report.view.status === 'ended' ? true : undefined))
    expect(report.view).toMatchObject({ rows: [], error: { final: true } })
  })
})
