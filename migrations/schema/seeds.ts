/** A tenant's settings may leave every key to the installation; no two have one app_url. */
export const settings = [
  `alter table "svc_Settings" add constraint "svc_Settings_installation_complete" check
    ("tenant_Id" is not null or (project_name is not null and smtp_enabled is not null and smtp_secure is not null))`,
  'create unique index "svc_Settings_app_url_unique" on "svc_Settings" (lower(app_url))',
]

export const insertRuleSql = `insert into "svc_ACL" (name, description, fields, conditions, system)
  values ($1, $2, '["*"]', $3::jsonb, true)`

const own = { userCreated_Id: { eq: '$CURRENT_USER' } }

/** The named rules that every installation has. */
export const systemRules = [
  { name: 'Read_All', description: 'Every item', conditions: {} },
  { name: 'Read_Own', description: 'Items that the caller has created', conditions: own },
  { name: 'Update_Own', description: 'Items that the caller has created', conditions: own },
  { name: 'Delete_Own', description: 'Items that the caller has created', conditions: own },
  {
    name: 'Own_Tenant',
    description: "Items of the caller's tenant",
    conditions: { tenant_Id: { eq: '$CURRENT_TENANT' } },
  },
]
