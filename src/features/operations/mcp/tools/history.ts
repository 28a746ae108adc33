import { Type } from '../../../../adapters/typebox.ts'
import { OneOf, Text } from '../../../../http/shapes.ts'
import { Collection, ItemId, optional, type Tool, tool } from '../tool.ts'

const cursor = optional(Text('4711', { description: 'The `nextCursor` of the page before.' }))
const limit = Type.Integer({ minimum: 1, maximum: 100, default: 25, description: 'How many at most, up to 100.' })

/** Tools for history and undo. */
export const historyTools: readonly Tool[] = [
  tool({
    name: 'svc_history',
    title: 'Read what happened to an item',
    description: 'Every change of an item, the newest first: who, when, and the values before and after.',
    group: 'read',
    needs: { action: 'read' },
    input: { collection: Collection, id: ItemId, limit, cursor },
    route: 'GET /items/:collection/:id/history',
    call: ({ collection, id, limit, cursor }) => ({ params: { collection, id }, query: { limit, cursor } }),
  }),
  tool({
    name: 'svc_undo',
    title: 'Undo a request',
    description:
      'Undoes all that a request or transaction changed. First without `plan`: nothing is written, and the answer says what would be, with a `plan`. Then with that plan: it is done, or refused where it would now do anything else. The id of a request is in its answer (`daybook/requestIds` of a tool) and in the history.',
    group: 'update',
    input: {
      requestId: optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: "The log's id of a request." })),
      position: optional(Text('4711', { description: 'Of an event, or its id: its transaction is undone.' })),
      include: optional(OneOf(['caused'], { description: 'Also what the request led to.' })),
      plan: optional(Text('J3k…', { minLength: 1, description: 'Of the dry run. Without it nothing is written.' })),
      force: optional(
        Type.Array(Type.Object({ collection: Collection, id: ItemId }), {
          maxItems: 1000,
          description: 'Rows to be undone although others have changed them since.',
        }),
      ),
    },
    route: 'POST /log/undo',
    call: ({ plan, ...body }) => ({ body: plan === undefined ? { ...body, dryRun: true } : { ...body, plan } }),
  }),
]
