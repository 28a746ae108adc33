import type { ScheduleExtension } from 'daybook/extensions'

/** Every night at three (UTC), a task that counts users and roles; the handler is in `svc-task-item-count`. */
const extension: ScheduleExtension = {
  id: 'nightly-item-count',
  schedule: '0 3 * * *',
  async handler({ ItemsService }) {
    const data = { type: 'item-count', task_data: { collections: ['svc_User', 'svc_Role'] } }
    await new ItemsService('svc_Tasks').createOne(data)
  },
}

export default extension
