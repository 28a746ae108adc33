import type { Api, Call } from './api.ts'

/** Requests that make and undo, and the rows of these collections as they are, without what every write changes. */
export function undoBed(api: () => Api, collections: readonly string[]) {
  const rows = async (table: string) =>
    (
      await api().sql(
        `select to_jsonb(t) - 'updatedAt' - 'userUpdated_Id' as row from "${table}" t order by t.id::text`,
      )
    ).map(({ row }) => JSON.stringify(row))
  const ok = async (answer: ReturnType<Call>) => {
    const { status, body, headers, text: words } = await answer
    if (status >= 300) throw new Error(`${status} ${words}`)
    return { data: body?.data, id: String(headers['x-request-id']) }
  }
  return {
    rows,
    all: async () => Object.fromEntries(await Promise.all(collections.map(async (name) => [name, await rows(name)]))),
    ok,
    make: async (collection: string, values: object) =>
      (await ok(api().admin('POST', `/items/${collection}`, values))).data.id,
    undo: (body: object, call: Call = api().admin) => call('POST', '/log/undo', body),
    clear: () => api().sql(`truncate ${collections.join(', ')} cascade`),
  }
}
