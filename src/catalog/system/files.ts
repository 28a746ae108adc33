import { belongsTo, define, id, integer, json, no, required, string, text, uuid } from './fields.ts'

export const file = define('svc_File', {
  usertrack: true,
  fields: {
    id,
    title: string,
    filename: required(string),
    originalFilename: required(string),
    type: required(string),
    folder: string,
    size: required(integer),
    description: text,
    storage: required(string),
    storage_folder: string,
    width: integer,
    height: integer,
    metadata: json,
    tenant_Id: uuid,
    isPublic: no,
    tenant: belongsTo('svc_Tenant', 'tenant_Id'),
  },
})
