import {
  belongsTo,
  cascade,
  define,
  hasMany,
  id,
  index,
  integer,
  json,
  no,
  oneOf,
  preset,
  required,
  string,
  text,
  uuid,
  yes,
} from './fields.ts'

/* Pages that a user interface builds of blocks; the server keeps them and decides who reads them. */

export const page = define('svc_Page', {
  usertrack: true,
  realtime: true,
  fields: {
    id,
    name: required(string),
    slug: required(string),
    icon: string,
    description: text,
    parent_Id: uuid,
    sort: preset(integer, 0),
    isPublic: no,
    enabled: yes,
    options: json,
    tenant_Id: uuid,
    parent: belongsTo('svc_Page', 'parent_Id', { onDelete: 'SET NULL' }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
    blocks: hasMany('svc_Block', 'page_Id'),
  },
  indexes: [index('svc_Page_tenant_slug_unique', ['tenant_Id', 'slug'], { unique: true, nullsNotDistinct: true })],
})

export const block = define('svc_Block', {
  usertrack: true,
  realtime: true,
  fields: {
    id,
    page_Id: required(uuid),
    type: oneOf(['table', 'form', 'details', 'kanban', 'calendar', 'chart', 'cardlist', 'map', 'markdown', 'filter'], {
      allowNull: false,
    }),
    collection: string,
    position: json,
    config: json,
    configVersion: preset(integer, 1),
    page: belongsTo('svc_Page', 'page_Id', cascade),
  },
})
