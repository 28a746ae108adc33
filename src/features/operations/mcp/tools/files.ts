import { Type } from '../../../../adapters/typebox.ts'
import { Text } from '../../../../http/shapes.ts'
import { Cursor, filtered, filteredQuery, Members, optional, RowId, type Tool, tool } from '../tool.ts'

const FileId = RowId('file')
const read = { action: 'read', collection: 'svc_File' } as const

export const fileTools: readonly Tool[] = [
  tool({
    name: 'svc_list_files',
    title: 'List files',
    description: 'Files that the caller may read, by filter. The content of a file is not in the answer.',
    group: 'read',
    needs: read,
    input: { ...filtered, cursor: optional(Cursor) },
    route: 'GET /files',
    call: (asked) => ({ query: filteredQuery(asked) }),
  }),
  tool({
    name: 'svc_get_file_info',
    title: 'Read what is known of a file',
    description: 'Name, type, size and owner of a file.',
    group: 'read',
    needs: read,
    input: { id: FileId },
    route: 'GET /files/:id',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_get_file_url',
    title: 'Sign an address of a file',
    description: 'An address by which anybody can read the content of the file for a while.',
    group: 'read',
    needs: read,
    input: {
      id: FileId,
      expiresIn: Type.Integer({ minimum: 1, maximum: 3600, default: 300, description: 'In how many seconds it ends.' }),
    },
    route: 'POST /files/:id/signed-url',
    call: ({ id, expiresIn }) => ({ params: { id }, body: { expiresIn } }),
  }),
  tool({
    name: 'svc_upload_file_from_url',
    title: 'Fetch a file from a URL',
    description: 'Stores what a public URL answers as a new file.',
    group: 'create',
    needs: { action: 'create', collection: 'svc_File' },
    input: {
      url: Text('https://example.com/ada.png', { minLength: 1, description: 'An http or https address.' }),
      title: optional(Text('Portrait')),
      description: optional(Text('Ada at her desk')),
      folder: optional(Text('portraits', { description: 'A label to sort files by.' })),
    },
    route: 'POST /files/upload-from-url',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_update_file',
    title: 'Change what is said of a file',
    description: 'Changes title, description, folder or metadata of a file, not its content.',
    group: 'update',
    needs: { action: 'update', collection: 'svc_File' },
    input: {
      id: FileId,
      title: optional(Text('Portrait')),
      description: optional(Text('Ada at her desk')),
      folder: optional(Text('portraits')),
      metadata: optional(Members('Anything of your own.', { camera: 'box' })),
    },
    route: 'PATCH /files/:id',
    call: ({ id, ...body }) => ({ params: { id }, body }),
  }),
  tool({
    name: 'svc_delete_file',
    title: 'Delete a file',
    description: 'Deletes a file with its content.',
    group: 'delete',
    needs: { action: 'delete', collection: 'svc_File' },
    input: { id: FileId },
    route: 'DELETE /files/:id',
    call: (params) => ({ params }),
  }),
]
