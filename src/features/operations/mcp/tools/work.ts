import { Type } from '../../../../adapters/typebox.ts'
import { Text } from '../../../../http/shapes.ts'
import {
  Filter,
  ItemId,
  Limit,
  Members,
  optional,
  Page,
  paging,
  RowId,
  Sort,
  sortText,
  type Tool,
  tool,
} from '../tool.ts'

const read = (collection: string) => ({ action: 'read', collection }) as const
const paged = { filter: optional(Filter), sort: optional(Sort), page: Page, limit: Limit }

const settings: readonly Tool[] = [
  tool({
    name: 'svc_server_info',
    title: 'Read about the server',
    description: 'Name, version and ways to sign in.',
    group: 'read',
    input: {},
    route: 'GET /',
    call: () => ({}),
  }),
  tool({
    name: 'svc_get_settings',
    title: 'Read the settings',
    description: 'The settings that the caller may see, or one of them.',
    group: 'read',
    input: { key: optional(Text('project_name', { minLength: 1, description: 'One setting.' })) },
    output: Type.Object({ data: Type.Record(Type.String(), Type.Unknown()) }),
    route: 'GET /settings',
    call: () => ({}),
    answer: ({ data }, { key }) =>
      key === undefined ? { data } : { data: { [key]: (data as Readonly<Record<string, unknown>>)[key] ?? null } },
  }),
  tool({
    name: 'svc_update_settings',
    title: 'Change settings',
    description: 'Changes the settings that are named.',
    group: 'update',
    input: { settings: Members('Settings by name.', { project_name: 'Acme' }) },
    route: 'PATCH /settings',
    call: ({ settings: body }) => ({ body }),
  }),
  tool({
    name: 'svc_list_templates',
    title: 'List mail templates',
    description: 'The stored mail templates.',
    group: 'read',
    needs: read('svc_Template'),
    input: paged,
    route: 'GET /items/:collection',
    call: ({ filter, sort, ...page }) => ({
      params: { collection: 'svc_Template' },
      query: { filter, sort: sortText(sort), ...paging(page) },
    }),
  }),
  tool({
    name: 'svc_get_template',
    title: 'Read a mail template',
    description: 'One stored mail template.',
    group: 'read',
    needs: read('svc_Template'),
    input: { id: RowId('template') },
    route: 'GET /items/:collection/:id',
    call: ({ id }) => ({ params: { collection: 'svc_Template', id } }),
  }),
  tool({
    name: 'svc_update_template',
    title: 'Change a mail template',
    description: 'Changes the subject, body or description of a stored mail template, or switches it off.',
    group: 'update',
    needs: { action: 'update', collection: 'svc_Template' },
    input: {
      id: RowId('template'),
      subject: optional(Text('Join {{ tenant.name }}')),
      description: optional(Text('For new members')),
      body: optional(Text('<p>Join {{ tenant.name }}</p>', { description: 'HTML with variables.' })),
      isActive: optional(Type.Boolean()),
    },
    route: 'PATCH /items/:collection/:id',
    call: ({ id, ...body }) => ({ params: { collection: 'svc_Template', id }, body }),
  }),
]

const notifications: readonly Tool[] = [
  tool({
    name: 'svc_list_notifications',
    title: 'List your notifications',
    description: 'The caller’s own notifications, the newest first.',
    group: 'read',
    input: {
      page: Page,
      limit: Limit,
      seen: optional(Type.Boolean({ description: 'Only seen or only unseen ones.' })),
    },
    route: 'GET /notifications',
    call: ({ seen, ...page }) => ({ query: { ...(seen !== undefined && { filter: { seen } }), ...paging(page) } }),
  }),
  tool({
    name: 'svc_mark_notification_seen',
    title: 'Mark a notification as seen',
    description: 'Marks one notification of the caller as seen.',
    group: 'update',
    isDestructive: false,
    input: { id: RowId('notification') },
    route: 'POST /notifications/mark-seen',
    call: ({ id }) => ({ body: { notificationIds: [id] } }),
  }),
  tool({
    name: 'svc_send_notification',
    title: 'Send a notification',
    description: 'Sends a notification to users.',
    group: 'create',
    input: {
      recipients: Type.Array(Type.String({ minLength: 1 }), {
        minItems: 1,
        maxItems: 1000,
        description: 'Ids of users.',
        examples: [['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44']],
      }),
      title: Text('Your export is ready', { minLength: 1 }),
      message: Text('You can download it for seven days.', { minLength: 1 }),
      type: Text('info', { minLength: 1, default: 'info' }),
    },
    route: 'POST /notifications/send',
    call: ({ recipients: userIds, ...body }) => ({ body: { ...body, userIds } }),
  }),
]

const collection = 'svc_Tasks'

const tasks: readonly Tool[] = [
  tool({
    name: 'svc_list_tasks',
    title: 'List tasks',
    description: 'Background tasks: what waits, runs, has ended or failed.',
    group: 'read',
    needs: read(collection),
    input: paged,
    route: 'GET /items/:collection',
    call: ({ filter, sort, ...page }) => ({
      params: { collection },
      query: { filter, sort: sortText(sort ?? 'scheduled_time:desc'), ...paging(page) },
    }),
  }),
  tool({
    name: 'svc_get_task',
    title: 'Read a task',
    description: 'The state, progress and outcome of one task.',
    group: 'read',
    needs: read(collection),
    input: { id: ItemId },
    route: 'GET /items/:collection/:id',
    call: ({ id }) => ({ params: { collection, id } }),
  }),
  tool({
    name: 'svc_create_task',
    title: 'Create a task',
    description: 'Has work done in the background, now or later.',
    group: 'create',
    needs: { action: 'create', collection },
    input: {
      type: Text('report', { minLength: 1, description: 'The handler of an extension.' }),
      task_data: optional(Members('The input of the handler.', { year: 2026 })),
      scheduled_time: optional(Text('2026-03-14T09:26:53Z', { description: 'When it starts; now unless given.' })),
      max_retries: optional(Type.Integer({ minimum: 0, description: 'How often a broken attempt is repeated.' })),
    },
    route: 'POST /items/:collection',
    call: (body) => ({ params: { collection }, body }),
  }),
  tool({
    name: 'svc_cancel_task',
    title: 'Cancel a task',
    description: 'Keeps one task from being started.',
    group: 'update',
    needs: { action: 'update', collection },
    input: { id: ItemId },
    route: 'PATCH /items/:collection/:id',
    call: ({ id }) => ({ params: { collection, id }, body: { status: 'archived' } }),
  }),
]

/** Settings, mail templates, notifications and tasks. */
export const workTools: readonly Tool[] = [...settings, ...notifications, ...tasks]
