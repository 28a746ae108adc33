import { Type } from '../../../adapters/typebox.ts'
import { route } from '../../../http/route.ts'
import { Count, Filled, Id, Nothing, NullableId, OneOf, Row, Said, Text } from '../../../http/shapes.ts'
import { fileBody, ImportedShape, ItemsShape, ListQuery, ReadQuery } from '../../data/items/items.ts'

const tag = 'Files'
const id = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
const Params = Type.Object({ id: Text(id) })
const Saved = Type.Object({ data: Text(id, { description: 'The id of the file.' }) })
const said = (example: string, description: string) => Type.Optional(Text(example, { description }))

/** The sender's description of a file; all of it is text in a form. */
const spoken = {
  title: said('Portrait', 'The name of the file unless given.'),
  description: said('Ada at her desk', 'Free text.'),
  folder: said('portraits', 'A label to sort files by; no path.'),
  storage: said('local', 'The storage service; STORAGE_DEFAULT_SERVICE unless given.'),
  isPublic: said('false', 'Whether everybody may read it.'),
  originalFilename: said('ada.png', 'The name that downloads have; that of the upload unless given.'),
  metadata: said('{"camera":"box"}', 'JSON.'),
}

/** The body is a stream: it may take as long as it moves. */
const streamed = { config: { streamedBody: true } } as const

export const listRoute = route({
  summary: 'List files',
  scope: 'read',
  description: 'As `GET /items/svc_File`.',
  tag,
  query: ListQuery,
  response: { 200: ItemsShape, 304: Nothing },
  readElsewhere: 'all',
  sendsText: true,
})
export const readRoute = route({
  summary: 'Read what is known of a file',
  scope: 'read',
  tag,
  params: Params,
  query: ReadQuery,
  response: { 200: Type.Object({ data: Row }), 304: Nothing },
  readElsewhere: 'all',
  sendsText: true,
})
export const uploadRoute = route(
  {
    summary: 'Upload a file',
    scope: 'write',
    description: 'As a form. Fields may precede the file or follow it.',
    tag,
    body: fileBody('file', spoken),
    response: { 200: Saved },
    readElsewhere: 'all',
  },
  streamed,
)
export const fromUrlRoute = route({
  summary: 'Fetch a file from a URL',
  scope: 'write',
  tag,
  body: Type.Object(
    { url: Text('https://example.com/ada.png', { refusal: 'url must be an http or https address' }) },
    { additionalProperties: true },
  ),
  response: { 200: Saved },
})
export const changeRoute = route(
  {
    summary: 'Change a file',
    scope: 'write',
    description: 'JSON for what is said of it, a form to replace its content as well.',
    tag,
    params: Params,
    body: Type.Object(
      { file: Type.Optional(Text('(a file)', { format: 'binary' })), ...spoken },
      { additionalProperties: true },
    ),
    response: { 200: Saved },
    readElsewhere: 'all',
  },
  streamed,
)
export const deleteRoute = route({
  summary: 'Delete a file',
  scope: 'write',
  description: 'With its content and everything that was made of it.',
  tag,
  params: Params,
  response: { 200: Said('File deleted successfully') },
})

export const importRoute = route({
  summary: 'Import rows from a stored file',
  scope: 'write',
  description:
    'A CSV or JSON file that the caller may read, as `POST /items/{collection}/import-csv` takes it: all rows or none.',
  tag,
  params: Params,
  body: Type.Object({
    collection: Filled('country', { refusal: 'collection is required' }),
    format: Type.Optional(
      OneOf(['csv', 'json'], {
        examples: ['csv'],
        description: 'By the name or the type of the file unless given.',
        refusal: 'format must be csv or json',
      }),
    ),
    tenant: Type.Optional(Id({ description: 'Of the rows, for callers that no tenant is stamped for.' })),
  }),
  response: {
    200: ImportedShape,
  },
})

const counted = (example: number) => Type.Optional(Count(example))
export const migrateRoute = route({
  summary: 'Move files into the folders of their tenant and user',
  scope: 'admin',
  description: 'While they are served. Can be repeated at any time; 409 while another one runs.',
  tag,
  query: Type.Object({ dryRun: Type.Optional(Type.Boolean({ description: 'Only counts.', examples: [false] })) }),
  response: {
    200: Type.Object({
      data: Type.Object({
        dryRun: Type.Boolean(),
        scanned: Count(3),
        planned: counted(3),
        moved: counted(3),
        skipped: Type.Optional(Count(0, { description: 'Changed or deleted meanwhile.' })),
        failed: counted(0),
        errors: Type.Optional(Type.Array(Type.Object({ id: Text(id), message: Text('content is gone') }))),
      }),
    }),
  },
})
export const usageRoute = route({
  summary: 'Read what the files of each tenant come to',
  scope: 'admin',
  description: 'By storage service, in bytes; exact at any moment.',
  tag,
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({ tenant_Id: NullableId(), storage: Text('local'), files: Count(12), bytes: Count(3_145_728) }),
      ),
    }),
  },
})
