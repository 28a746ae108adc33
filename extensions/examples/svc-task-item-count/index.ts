import type { TaskExtension } from 'daybook/extensions'

/**
 * Tasks of type `item-count` count the items of the collections that `task_data.collections` names. Create one with
 * `POST /items/svc_Tasks {"type": "item-count", "task_data": {"collections": ["svc_User"]}}`; the counts are its
 * `result_data`.
 */
const extension: TaskExtension = {
  type: 'item-count',
  timeoutSeconds: 60,
  async handler({ data, progress }, { ItemsService }) {
    const { collections } = (data ?? {}) as { collections?: unknown }
    if (!Array.isArray(collections)) throw new Error('task_data.collections must name collections')
    const counts: Record<string, number | undefined> = {}
    for (const [done, name] of collections.entries()) {
      progress(done / collections.length, `counting ${name}`)
      const { totalCount } = await new ItemsService(String(name)).readByQuery({ limit: 1, meta: 'total' })
      counts[String(name)] = totalCount
    }
    return counts
  },
}

export default extension
