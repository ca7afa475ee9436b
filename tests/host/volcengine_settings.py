# SPDX-License-Identifier: MIT
"""The settings of Spark, Ray and custom jobs as Volcengine's document prints them."""

SPARK = """
# driver相关参数
'spark.driver.resource.gpu.vendor': 'nvidia.com', #GPU vendor
'spark.driver.resource.gpu.amount': '1', #GPU 卡数量
#executor相关参数
'spark.executor.resource.gpu.discoveryScript': '/opt/emr/current/spark/examples/src/main/scripts/getGpusResources.sh',
'spark.executor.resource.gpu.vendor': 'nvidia.com',
'spark.executor.resource.gpu.amount': '1',
#task相关参数,代表一个张gpu可以跑10个task
'spark.task.resource.gpu.amount': '0.1'
#mgpu相关参数
'emr.serverless.mgpu.core': '30',
'emr.serverless.mgpu.memory': '4096'
"""  # noqa: E501
RAY = """
# gpu相关参数
serverless.ray.worker.gpu.vendor=nvidia.com; serverless.ray.worker.gpu.amount=1;
#mgpu相关参数
emr.serverless.mgpu.core=30; emr.serverless.mgpu.memory=4096;
"""
CUSTOM = """
-- 设置gpu相关参数
set serverless.custom.job.gpu.enabled = true; set serverless.custom.job.task.gpus=1;
-- 设置mgu相关参数
set emr.serverless.mgpu.core=30; set emr.serverless.mgpu.memory=1000;
"""
